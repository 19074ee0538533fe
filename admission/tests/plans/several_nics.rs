//! Machines with several NICs for each GPU, or with a NIC behind a switch of its own.

use crate::cluster::*;
use admission::admit::{AdmitError, admit};
use admission::plan::{Plan, Policy};
use cluster_model::node_devices::NodeDevices;
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use std::collections::BTreeSet;
use topology_graph::{Level, NearestRequest, NicRole, PathKind, PciAddress, Topology};

const NODE: &str = "node-0";
const NVIDIA: &str = "nvidia.com/gpu";
const AMD: &str = "amd.com/gpu";

/// Pods of one kind that take the whole machine together.
struct Case {
    machine: Machine,
    resource: &'static str,
    pods: usize,
    gpus: u32,
    annotations: &'static [(&'static str, &'static str)],
}

const CASES: [Case; 13] = [
    of(P5, 8, 1, &[("aligned-nics", "4")]),
    of(P5, 8, 1, &[("aligned-nics", "4"), ("alignment-policy", "preferred")]),
    of(P5, 4, 2, &[("aligned-nics", "8")]),
    of(P5, 2, 4, &[("aligned-nics", "16")]),
    of(P5.with(Gpus::Nvidia), 8, 1, &[("aligned-nics", "4")]),
    of(P5.with(Gpus::Plugin), 1, 8, &[("aligned-nics", "32")]),
    of(P5EN, 8, 1, &[("aligned-nics", "2")]),
    of(P5EN, 2, 4, &[("aligned-nics", "8")]),
    of(P5EN, 1, 8, &[("aligned-nics", "16")]),
    of(P5EN.with(Gpus::Plugin), 1, 8, &[("aligned-nics", "16")]),
    of(POLLARA, 8, 1, &[("aligned-nics", "1"), ("alignment", "switch")]),
    of(POLLARA, 4, 2, &[("aligned-nics", "per-gpu"), ("alignment", "switch")]),
    of(POLLARA, 1, 8, &[("aligned-nics", "per-gpu"), ("alignment", "switch")]),
];

const fn of(
    machine: Machine,
    pods: usize,
    gpus: u32,
    annotations: &'static [(&'static str, &'static str)],
) -> Case {
    let resource = if matches!(machine.gpus, Gpus::Amd) { AMD } else { NVIDIA };
    Case { machine, resource, pods, gpus, annotations }
}

impl Case {
    fn name(&self) -> String {
        let Self { machine, gpus, annotations, .. } = self;
        format!("{} ({:?}): {gpus} GPU, {annotations:?}", machine.fixture, machine.gpus)
    }

    fn plan(&self, view: &ClusterView) -> Plan {
        let asked = pod(self.resource, self.gpus, self.annotations);
        admit(&asked, view, &Policy::default()).unwrap().planned.unwrap().plan
    }
}

/// The GPUs and NICs of a machine that pods with this claim get, one after the other.
fn given(
    view: &ClusterView,
    plan: &Plan,
    pods: usize,
    name: &str,
) -> Vec<(Vec<PciAddress>, Vec<PciAddress>)> {
    let devices = NodeDevices::new(view, NODE).unwrap();
    let claim = [Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap()];
    let mut state = AllocatedState::new();
    (0..pods)
        .map(|index| {
            let limits = Limits::steps(plan.steps.max(1));
            let attempt = allocate(view.inventory(), NODE, &claim, &state, view.settings(), limits);
            let Outcome::Allocated(claims) = attempt.outcome else {
                panic!("{name}: pod {index}: {:?}", attempt.outcome)
            };
            let taken: Vec<_> = claims[0].results.iter().map(|it| it.device.clone()).collect();
            for device in &taken {
                state.insert(device.clone());
            }
            let gpus = devices.gpus.iter().filter(|(_, gpu)| taken.contains(gpu.id()));
            let nics = devices.nics.iter().filter(|(_, nic)| taken.contains(nic.id()));
            (gpus.map(|(at, _)| *at).collect(), nics.map(|(at, _)| *at).collect())
        })
        .collect()
}

/// Fails unless each GPU has its share of these NICs below its own switch, where other GPUs have theirs.
fn check_each_has_its_own(
    topology: &Topology,
    gpus: &[PciAddress],
    nics: &[PciAddress],
    name: &str,
) {
    let is_near = |gpu: &PciAddress, nic: &PciAddress| topology.path(*gpu, *nic) == PathKind::Pix;
    for gpu in gpus {
        let own: Vec<_> = nics.iter().filter(|nic| is_near(gpu, nic)).collect();
        let sharing = gpus.iter().filter(|other| own.iter().all(|nic| is_near(other, nic))).count();
        let share = nics.len() / gpus.len();
        assert_eq!(own.len(), share * sharing, "{name}: {gpu} has {own:?} of {nics:?}");
    }
}

#[test]
fn every_gpu_gets_the_nics_of_its_own_switch() {
    for case in &CASES {
        let (name, view) = (case.name(), cluster(&[case.machine]));
        let plan = case.plan(&view);
        let topology = view.topology(NODE).unwrap();
        let all: Vec<PciAddress> = topology.gpus().iter().map(|gpu| gpu.address).collect();
        let mut taken = BTreeSet::new();
        for (gpus, nics) in given(&view, &plan, case.pods, &name) {
            let gpus = if plan.plugin.is_some() { all.clone() } else { gpus };
            assert_eq!(gpus.len(), case.gpus as usize, "{name}");
            check_each_has_its_own(topology, &gpus, &nics, &name);
            taken.extend(nics);
        }
        let compute = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
        let compute: BTreeSet<PciAddress> = compute.map(|nic| nic.address).collect();
        assert_eq!(taken, compute, "{name}: NICs of one kind, and all of them");
    }
}

/// The scheduler counts places; at the start of the pod each GPU gets the NICs of its own switch.
#[test]
fn late_binding_gives_every_gpu_the_nics_of_its_own_switch() {
    for (machine, nics_per_gpu) in [(P5, 4), (P5EN, 2)] {
        let view = cluster(&[machine.with(Gpus::PluginLate)]);
        let topology = view.topology(NODE).unwrap();
        let gpus: Vec<PciAddress> = topology.gpus().iter().map(|gpu| gpu.address).collect();
        let compute = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
        let nics: Vec<PciAddress> = compute.map(|nic| nic.address).collect();
        for own in gpus.chunks(1).chain(gpus.chunks(3)).chain([&gpus[..]]) {
            let count = own.len() * nics_per_gpu;
            let name = format!("{}: {count} NICs for {own:?}", machine.fixture);
            let words = count.to_string();
            let asked = pod(NVIDIA, u32::try_from(own.len()).unwrap(), &[("aligned-nics", &words)]);
            let plan = admit(&asked, &view, &Policy::default()).unwrap().planned.unwrap().plan;
            let claim = [Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap()];
            let state = AllocatedState::new();
            let limits = Limits::steps(plan.steps.max(1));
            let attempt = allocate(view.inventory(), NODE, &claim, &state, view.settings(), limits);
            let Outcome::Allocated(claims) = attempt.outcome else {
                panic!("{name}: {:?}", attempt.outcome)
            };
            assert_eq!(claims[0].results.len(), count, "{name}");
            let request = NearestRequest {
                gpus: own.to_vec(),
                nics: nics.clone(),
                count,
                within: Some(Level::Numa),
                rest: gpus.iter().filter(|gpu| !own.contains(gpu)).copied().collect(),
            };
            let chosen = topology.nearest(&request).expect("they are free");
            check_each_has_its_own(topology, own, &chosen, &name);
        }
    }
}

/// Eight GPUs and 32 NICs are more devices than Kubernetes allows in a claim, unless a device plugin gives
/// out the GPUs.
#[test]
fn more_devices_than_a_claim_holds_are_denied() {
    for (gpus, nics, counted) in [(8, "32", "32 NICs and 8 GPUs are 40 devices"), (4, "29", "33")] {
        let asked = pod(NVIDIA, gpus, &[("aligned-nics", nics)]);
        let Err(AdmitError::Denied(denial)) = admit(&asked, &cluster(&[P5]), &Policy::default())
        else {
            panic!("not denied")
        };
        let text = denial.to_string();
        assert!(text.contains(counted) && text.contains("a claim holds at most 32"), "{text}");
    }
}
