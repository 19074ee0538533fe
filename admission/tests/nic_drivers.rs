//! Clusters whose NICs are published by the drivers of clouds and network operators, with the graphs
//! of our driver beside them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster::{A3, Built, Gpus, Machine, NVL72, classes, pod};
use cluster_model::node_devices::NodeDevices;
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::{Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use topology_graph::{NodeTopology, PathKind, PciAddress};

const A100_PCIE: Machine =
    Machine { fixture: "a100-pcie-8gpu", size: None, gpus: Gpus::NvidiaWithNuma };

/// The fixtures, the machine that each one describes, and a class that the pod must name.
const CASES: [(&str, Machine, Option<&str>); 6] = [
    ("sriov", A100_PCIE, None),
    ("sriov-numa", A100_PCIE, None),
    ("cilium", A100_PCIE, Some("rdma.networkdriver.cilium.io")),
    ("aws", NVL72, None),
    ("gke", A3, None),
    ("gke-dranet", A3, None),
];

/// The label that names the type of a node's machine.
const TYPE: &str = "topology.dranet.io/machine-type";

/// The RDMA devices of AWS's fixture.
const RDMA_DEVICES: [(&str, &str); 4] = [
    ("0000:03:00.0", "rocep3s0"),
    ("0002:03:00.0", "rocep515s0"),
    ("0010:03:00.0", "rocep4099s0"),
    ("0012:03:00.0", "rocep4611s0"),
];

const INTENTS: &[(u32, &[(&str, &str)])] = &[
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "1"), ("alignment", "numa")]),
    (1, &[("aligned-nics", "1"), ("alignment-policy", "preferred")]),
    (2, &[("aligned-nics", "1")]),
    (2, &[("aligned-nics", "per-gpu")]),
    (4, &[("aligned-nics", "per-gpu")]),
    (1, &[("aligned-nics", "1"), ("nic-role", "storage")]),
    (1, &[("aligned-nics", "1"), ("nic-config", "{\"interface\": {\"mtu\": 9000}}")]),
    (1, &[("aligned-nics", "1"), ("nic-sharing", "shared")]),
];

/// The objects of a fixture.
fn objects(fixture: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/nic-drivers");
    snapshot::objects(&Path::new(folder).join(fixture).with_extension("yaml")).unwrap()
}

/// A node with the NICs of a fixture, the GPUs of NVIDIA's driver and the graph of the machine, in
/// which RDMA devices have the names of the fixture's devices if these are such names.
fn put(view: &mut ClusterView, name: &str, fixture: &str, machine: Machine, label: Option<&str>) {
    let built = Built::new(machine, &[], &SharingArgs::default());
    built.put(view, name, 0);
    Index::<ResourceSlice>::delete(view, &ObjectKey::cluster_wide(&format!("{name}-dra.net")));
    let mut spec = built.spec().clone();
    for object in objects(fixture) {
        if object["kind"] == "DeviceClass" {
            view.apply(serde_json::from_value::<DeviceClass>(object).unwrap()).unwrap();
            continue;
        }
        for (address, device) in RDMA_DEVICES {
            let identity = spec.identities.iter_mut().find(|it| it.at == address);
            identity.filter(|_| fixture == "aws").into_iter().for_each(|it| {
                it.rdma_device = Some(device.to_owned());
            });
        }
        let text = object.to_string().replace("node-0", name);
        view.apply(serde_json::from_str::<ResourceSlice>(&text).unwrap()).unwrap();
    }
    view.apply(NodeTopology::new(name, spec)).unwrap();
    let labels: BTreeMap<&str, &str> = label.into_iter().map(|value| (TYPE, value)).collect();
    let node = json!({ "metadata": { "name": name, "labels": labels } });
    view.apply(serde_json::from_value::<Node>(node).unwrap()).unwrap();
}

/// A cluster with one such node.
fn view(fixture: &str, machine: Machine, label: Option<&str>) -> ClusterView {
    let mut view = ClusterView::default();
    for class in classes() {
        view.apply(class).unwrap();
    }
    put(&mut view, "node-0", fixture, machine, label);
    view
}

fn request(gpus: u32, annotations: &[(&str, &str)], class: Option<&str>) -> Value {
    let class = class.map(|class| ("nic-class", class));
    let all: Vec<_> = annotations.iter().copied().chain(class).collect();
    pod("nvidia.com/gpu", gpus, &all)
}

fn report(view: &ClusterView, class: Option<&str>) -> String {
    let mut text = String::new();
    for (gpus, annotations) in INTENTS {
        let answer = match admit(&request(*gpus, annotations, class), view, &Policy::default()) {
            Ok(verdict) => {
                let selector = &verdict.pod["spec"]["nodeSelector"];
                let only = if selector.is_null() { String::new() } else { format!("; {selector}") };
                let note = verdict.planned.unwrap().plan.note("…");
                format!("{}{only}", note.split("; template").next().unwrap())
            }
            Err(error) => format!("denied: {error}"),
        };
        writeln!(text, "{gpus} GPU {annotations:?}\n    {answer}").unwrap();
    }
    text
}

#[test]
fn plans_for_every_driver() {
    for (fixture, machine, class) in CASES {
        insta::assert_snapshot!(fixture, report(&view(fixture, machine, None), class));
        let labelled = view(fixture, machine, Some("a-type"));
        insta::assert_snapshot!(format!("{fixture}_labelled"), report(&labelled, class));
    }
}

/// The claims of two plans as the API server gets them: by attribute and by bus ID.
#[test]
fn claims_for_other_drivers() {
    let mut text = String::new();
    for (fixture, machine, class) in CASES {
        let view = view(fixture, machine, Some("a-type"));
        let pod = request(1, &[("aligned-nics", "1")], class);
        let Ok(verdict) = admit(&pod, &view, &Policy::default()) else { continue };
        let claim = serde_json::to_string_pretty(&verdict.planned.unwrap().plan.claim).unwrap();
        writeln!(text, "{fixture}\n{claim}").unwrap();
    }
    insta::assert_snapshot!(text);
}

/// What the scheduler allocates on the node is as near as the plan says, and no other machine type
/// is chosen for a claim that lists bus IDs.
#[test]
fn pods_get_near_nics_of_every_driver() {
    let mut planned = 0;
    for (fixture, machine, class) in CASES {
        let view = view(fixture, machine, Some("a-type"));
        for (gpus, annotations) in INTENTS {
            let pod = request(*gpus, annotations, class);
            let Ok(verdict) = admit(&pod, &view, &Policy::default()) else { continue };
            let plan = verdict.planned.unwrap().plan;
            let given = allocated(&view, &plan);
            let devices = NodeDevices::new(&view, "node-0").unwrap();
            let (gpu, nic): (Vec<PciAddress>, Vec<PciAddress>) =
                given.into_iter().partition(|address| devices.gpus.contains_key(address));
            assert_eq!(gpu.len(), *gpus as usize, "{fixture} {annotations:?}");
            for gpu in gpu {
                let nearest = nic.iter().map(|nic| devices.topology.path(gpu, *nic)).min();
                assert!(nearest <= Some(PathKind::Node), "{fixture} {annotations:?}: {nearest:?}");
            }
            planned += 1;
        }
    }
    assert!(planned > 20, "{planned} plans");
}

/// The devices that the scheduler would allocate.
fn allocated(view: &ClusterView, plan: &Plan) -> Vec<PciAddress> {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap();
    let inventory = view.inventory();
    let (state, steps) = (inventory.state(), Limits::steps(10_000));
    let found = allocate(inventory, "node-0", &[claim], state, view.settings(), steps);
    let Outcome::Allocated(claims) = found.outcome else { panic!("{:?}", found.outcome) };
    let devices = NodeDevices::new(view, "node-0").unwrap();
    let all = devices.gpus.iter().chain(&devices.nics);
    let given = all.filter(|(_, device)| {
        claims.iter().flat_map(|it| &it.results).any(|it| it.device == *device.id())
    });
    given.map(|(address, _)| *address).collect()
}

/// A pod whose claim lists bus IDs without a shape runs only on nodes of the type that they are of.
#[test]
fn pods_pinned_by_label_stay_on_their_type_of_machine() {
    let mut view = view("cilium", A100_PCIE, Some("a-type"));
    put(&mut view, "node-1", "cilium", A100_PCIE, Some("b-type"));
    put(&mut view, "node-2", "cilium", A100_PCIE, None);
    let wanted = request(1, &[("aligned-nics", "1")], Some("rdma.networkdriver.cilium.io"));
    let verdict = admit(&wanted, &view, &Policy::default()).unwrap();
    let chosen = verdict.pod["spec"]["nodeSelector"][TYPE].as_str().unwrap().to_owned();
    assert!(["a-type", "b-type"].contains(&chosen.as_str()));
    let again = admit(&verdict.pod, &view, &Policy::default()).unwrap();
    assert_eq!(
        again.pod["spec"], verdict.pod["spec"],
        "a pod that is decided again keeps its type"
    );
}
