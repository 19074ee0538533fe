//! The law of empty machines: an admitted pod fits on every machine that its plan counts while nothing
//! is in use there and every device is in order, whatever the drivers publish.

use crate::cluster::*;
use crate::fleets::remember;
use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use cluster_model::names::attribute;
use cluster_model::view::{ClusterView, Index as _};
use dra_allocator::{AllocatedState, Claim, ClaimName, Inventory, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::LazyLock;

/// Random clusters; `PROPTEST_CASES` sets another number.
const CLUSTERS: u32 = 200;

/// The number that proptest takes without the variable.
const UNASKED: u32 = 256;

/// Machines with NVIDIA's GPUs, AMD's and Intel's, as their drivers publish them.
static MACHINES: LazyLock<Vec<Built>> = LazyLock::new(|| {
    let machines = [
        GB300,
        GB200,
        H100,
        H100.with(Gpus::Nvidia),
        A100,
        P4D,
        HGX,
        A3,
        MI300X,
        DGX_H100_VFS,
        NVL72,
        GB300.with(Gpus::Intel),
        H100.with(Gpus::Plugin),
        GB300.with(Gpus::PluginLate),
    ];
    machines.map(|machine| Built::new(machine, &[], &SharingArgs::default())).to_vec()
});

/// What is unusual about all NICs, or all GPUs, of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddity {
    /// NICs in PCI domains above ffff.
    NicsWithoutBusId,
    /// One NIC of them.
    OneNicWithoutBusId,
    NicsWithoutRoles,
    NicsWithoutShape,
    NicsWithoutNuma,
    NicsWithoutPartner,
    NicsDown,
    NicsDegraded,
    NicsTainted,
    OneNicTainted,
    GpusTainted,
    /// NVIDIA's driver with the bus ID in its own domain only.
    GpusWithOwnBusId,
    GpusWithoutBusId,
    GpusWithoutUuid,
    GpusWithoutKind,
    /// Some NICs are of no placement group.
    OneNicWithoutFabric,
}

use Oddity::{
    GpusTainted, GpusWithOwnBusId, GpusWithoutBusId, GpusWithoutKind, GpusWithoutUuid,
    NicsDegraded, NicsDown, NicsTainted, NicsWithoutBusId, NicsWithoutNuma, NicsWithoutPartner,
    NicsWithoutRoles, NicsWithoutShape, OneNicTainted, OneNicWithoutBusId, OneNicWithoutFabric,
};

const ODDITIES: [Oddity; 16] = [
    NicsWithoutBusId,
    OneNicWithoutBusId,
    NicsWithoutRoles,
    NicsWithoutShape,
    NicsWithoutNuma,
    NicsWithoutPartner,
    NicsDown,
    NicsDegraded,
    NicsTainted,
    OneNicTainted,
    GpusTainted,
    GpusWithOwnBusId,
    GpusWithoutBusId,
    GpusWithoutUuid,
    GpusWithoutKind,
    OneNicWithoutFabric,
];

fn remove(device: &mut Value, name: &str) {
    device["attributes"].as_object_mut().unwrap().remove(name);
}

fn taint(device: &mut Value) {
    device["taints"] = json!([{ "key": "dranet.io/port-down", "effect": "NoSchedule" }]);
}

impl Oddity {
    fn change_nic(self, index: usize, nic: &mut Value) {
        match self {
            NicsWithoutBusId => remove(nic, attribute::PCI_BUS_ID),
            OneNicWithoutBusId if index == 0 => remove(nic, attribute::PCI_BUS_ID),
            NicsWithoutRoles => remove(nic, attribute::ROLE),
            NicsWithoutShape => remove(nic, attribute::SHAPE),
            NicsWithoutNuma => remove(nic, attribute::NUMA_NODE),
            NicsWithoutPartner => remove(nic, "gpu.nvidia.com/uuid"),
            NicsDown => nic["attributes"][attribute::PORT_STATE] = json!({ "string": "Down" }),
            NicsDegraded => nic["attributes"][attribute::DEGRADED] = json!({ "bool": true }),
            NicsTainted => taint(nic),
            OneNicTainted if index == 0 => taint(nic),
            OneNicWithoutFabric if index == 0 => remove(nic, attribute::AZURE_PLACEMENT_GROUP),
            _ => {}
        }
    }

    fn change_gpu(self, gpu: &mut Value) {
        match self {
            GpusTainted => taint(gpu),
            GpusWithOwnBusId => {
                let attributes = gpu["attributes"].as_object_mut().unwrap();
                if let Some(bus) = attributes.remove(attribute::PCI_BUS_ID) {
                    attributes.insert("pcieBusID".to_owned(), bus);
                }
            }
            GpusWithoutBusId => remove(gpu, attribute::PCI_BUS_ID),
            GpusWithoutUuid => remove(gpu, "uuid"),
            GpusWithoutKind => remove(gpu, "type"),
            _ => {}
        }
    }
}

/// A node: its machine, what is unusual, and whether its GPUs are all in parts.
#[derive(Clone, Debug)]
struct Node {
    machine: usize,
    odd: Vec<Oddity>,
    in_parts: bool,
}

/// A cluster, and a pod.
#[derive(Clone, Debug)]
struct Asked {
    nodes: Vec<Node>,
    remembered: Vec<Node>,
    resource: &'static str,
    gpus: u32,
    annotations: Vec<(&'static str, &'static str)>,
}

const PODS: [(u32, &[(&str, &str)]); 9] = [
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "2"), ("pairing", "group")]),
    (2, &[("aligned-nics", "1"), ("pairing", "group")]),
    (4, &[("aligned-nics", "4")]),
    (8, &[("aligned-nics", "8")]),
    (0, &[("aligned-nics", "1"), ("gpus", "0")]),
    (0, &[("aligned-nics", "2"), ("gpus", "0")]),
];

const RESOURCES: [&str; 4] =
    ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "nvidia.com/mig-1g.10gb"];

fn nodes(most: usize) -> impl Strategy<Value = Vec<Node>> {
    let odd = subsequence(&ODDITIES[..], 0..3);
    let node = (0..MACHINES.len(), odd, prop::bool::weighted(0.1))
        .prop_map(|(machine, odd, in_parts)| Node { machine, odd, in_parts });
    prop::collection::vec(node, 0..=most)
}

fn asked() -> impl Strategy<Value = Asked> {
    let levels = select(&[None, Some("numa"), Some("root"), Some("switch"), Some("root-port")][..]);
    // Most machines have NVIDIA's GPUs.
    let resource = prop_oneof![4 => Just(RESOURCES[0]), 1 => select(&RESOURCES[..])];
    (nodes(4), nodes(2), resource, select(&PODS[..]), levels, any::<bool>()).prop_map(
        |(nodes, remembered, resource, (gpus, annotations), level, is_preferred)| {
            let mut annotations = annotations.to_vec();
            annotations.extend(level.map(|level| ("alignment", level)));
            annotations.extend(is_preferred.then_some(("alignment-policy", "preferred")));
            Asked { nodes, remembered, resource, gpus, annotations }
        },
    )
}

impl Node {
    fn built(&self) -> Built {
        let built = MACHINES[self.machine].clone();
        let built = if self.in_parts { built.in_parts() } else { built };
        self.odd.iter().fold(built, |built, odd| {
            built
                .with_gpus(|gpu| odd.change_gpu(gpu))
                .with_nics(|index, nic| odd.change_nic(index, nic))
        })
    }
}

impl Asked {
    fn view(&self) -> ClusterView {
        let mut view = cluster(&[]);
        view.apply(mig_class()).unwrap();
        for (index, node) in self.nodes.iter().enumerate() {
            node.built().put(&mut view, &format!("node-{index}"), index);
        }
        let remembered: Vec<Built> = self.remembered.iter().map(Node::built).collect();
        remember(&mut view, &remembered.iter().collect::<Vec<_>>());
        view
    }
}

/// What the allocator says of the claim on a node with nothing in use and no troubled device.
fn on_empty(spec: &ResourceClaimSpec, view: &ClusterView, node: &str) -> Outcome {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), spec).unwrap();
    let recovered: Option<Inventory> = view.recovered(node);
    let inventory = recovered.as_ref().unwrap_or_else(|| view.inventory());
    let limits = Limits::steps(Policy::default().max_steps);
    let empty = AllocatedState::new();
    allocate(inventory, node, &[claim], &empty, view.settings(), limits).outcome
}

/// Whether the pod is admitted.
fn check(asked: &Asked) -> Result<bool, TestCaseError> {
    let view = asked.view();
    let mut pod = pod(asked.resource, asked.gpus, &asked.annotations);
    if asked.gpus == 0 {
        pod["spec"]["containers"][0]["resources"] = json!({});
    }
    let plan = match admit(&pod, &view, &Policy::default()) {
        Ok(verdict) => verdict.planned.unwrap().plan,
        Err(AdmitError::Denied(_)) => return Ok(false),
        Err(error) => return Err(TestCaseError::fail(format!("{asked:?}: {error}"))),
    };
    let present = plan.machines.iter().filter(|machine| machine.is_served);
    let counted: usize = present.map(|machine| machine.present).sum();
    prop_assert_eq!(counted, plan.nodes.0, "{:?}: {:?}", asked, plan);
    let served = plan.machines.iter().filter(|machine| machine.is_served);
    prop_assert!(served.clone().count() > 0, "{asked:?}: no machine: {plan:?}");
    // Each pod gets one of the pinned claims, if there are any.
    let pins = plan.pins.iter().map(|pin| &pin.claim);
    let claims: Vec<_> = if plan.pins.is_empty() { vec![&plan.claim] } else { pins.collect() };
    for node in served.flat_map(|machine| &machine.nodes) {
        let mut outcomes = claims.iter().map(|claim| on_empty(claim, &view, node));
        let fits = outcomes.any(|outcome| matches!(outcome, Outcome::Allocated(_)));
        prop_assert!(fits, "{asked:?} on {node}: {plan:?}");
    }
    Ok(true)
}

#[test]
fn an_admitted_pod_fits_on_every_machine_that_its_plan_counts() {
    let cases = Config::default().cases;
    let config = Config::with_cases(if cases == UNASKED { CLUSTERS } else { cases });
    let admitted = Cell::new(0_u32);
    let result = TestRunner::new(config).run(&asked(), |asked| {
        let is_admitted = check(&asked)?;
        admitted.set(admitted.get() + u32::from(is_admitted));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(admitted.get() > CLUSTERS / 5, "{} were admitted", admitted.get());
}

/// Nodes of one type whose GPU drivers publish the bus ID by different names, or not at all, are not
/// counted as one machine.
#[test]
fn nodes_with_other_names_of_bus_ids_are_other_machines() {
    let node = |odd: &[Oddity]| Node { machine: 0, odd: odd.to_vec(), in_parts: false };
    for (gpus, annotations) in PODS.into_iter().take(4) {
        let nodes = vec![node(&[GpusWithOwnBusId]), node(&[GpusWithoutBusId]), node(&[])];
        let (remembered, annotations) = (Vec::new(), annotations.to_vec());
        let asked = Asked { nodes, remembered, resource: RESOURCES[0], gpus, annotations };
        assert!(check(&asked).unwrap(), "{asked:?}");
    }
}
