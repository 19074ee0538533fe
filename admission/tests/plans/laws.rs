//! Laws of plans: whatever is busy, the scheduler's allocator gives devices that
//! are as near as promised, and gives them whenever they are there.

use crate::brute_force::{Devices, Near};
use crate::cluster::*;
use admission::admit::{Planned, Verdict, admit};
use admission::intent::{AlignmentPolicy, Pairing};
use admission::nearness::Nearness;
use admission::plan::Policy;
use cluster_model::names::{PORT_ACTIVE, attribute};
use cluster_model::node_devices::{NodeDevices, is_true, text};
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, Claim, ClaimAllocation, ClaimName, Device, Limits, Outcome, allocate,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use topology_graph::{Level, PciAddress};

/// Random states of machines, over all cases.
const STATES: u32 = 100_000;

/// A planned pod on a cluster.
struct Case {
    name: String,
    view: Arc<ClusterView>,
    planned: Planned,
    patched: Value,
    claim: Claim,
    gpus: usize,
    nics: usize,
    pairing: Pairing,
}

const INTENTS: &[(u32, &str, Pairing)] = &[
    (1, "1", Pairing::Group),
    (1, "2", Pairing::Group),
    (2, "2", Pairing::Each),
    (2, "2", Pairing::Group),
    (2, "1", Pairing::Group),
    (3, "3", Pairing::Each),
    (4, "4", Pairing::Each),
    (4, "4", Pairing::Group),
    (3, "2", Pairing::Group),
    (8, "8", Pairing::Each),
];

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let clusters: &[(&str, &[Machine])] = &[
        ("gb300", &[GB300]),
        ("gb300 numa", &[GB300.with(Gpus::NvidiaWithNuma)]),
        ("gb200", &[GB200]),
        ("h100", &[H100]),
        ("h100 old", &[H100.with(Gpus::Nvidia)]),
        ("a100", &[A100]),
        ("mi300x", &[MI300X]),
        ("p4d", &[P4D]),
        ("hgx", &[HGX]),
        ("a3", &[A3]),
        ("gb300 and h100", &[GB300, H100]),
        ("h100 and a100", &[H100, A100]),
        ("a3 and gb200", &[A3, GB200]),
    ];
    let mut cases = Vec::new();
    for (name, machines) in clusters {
        let view = Arc::new(cluster(machines));
        for (gpus, nics, pairing) in INTENTS {
            for level in [None, Some("numa"), Some("root"), Some("switch")] {
                for policy in ["required", "preferred"] {
                    let intent = (*gpus, *nics, *pairing, level, policy);
                    cases.extend(case(name, &view, intent));
                }
            }
        }
    }
    cases
});

/// The case, unless the pod is denied, which has its own law.
fn case(
    name: &str,
    view: &Arc<ClusterView>,
    (gpus, nics, pairing, level, policy): (u32, &str, Pairing, Option<&str>, &str),
) -> Option<Case> {
    let word = if pairing == Pairing::Each { "each" } else { "group" };
    let mut annotations =
        vec![("aligned-nics", nics), ("pairing", word), ("alignment-policy", policy)];
    annotations.extend(level.map(|level| ("alignment", level)));
    let resource = if name == "mi300x" { "amd.com/gpu" } else { "nvidia.com/gpu" };
    let pod = pod(resource, gpus, &annotations);
    let Verdict { pod: patched, planned, .. } = admit(&pod, view, &Policy::default()).ok()?;
    let planned = planned?;
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &planned.plan.claim).unwrap();
    Some(Case {
        name: format!("{name}: {gpus} GPUs {annotations:?}"),
        view: Arc::clone(view),
        planned,
        patched,
        claim,
        gpus: gpus as usize,
        nics: nics.parse().unwrap(),
        pairing,
    })
}

impl Case {
    fn is_possible(&self, near: &Near<'_>, free: &Devices) -> bool {
        match self.pairing {
            Pairing::Group => near.group(free, self.gpus, self.nics),
            Pairing::Each => near.each(free, self.gpus, self.nics / self.gpus),
        }
    }

    /// The farthest level that still counts as aligned.
    fn promise(&self) -> Nearness {
        let plan = &self.planned.plan;
        match plan.policy {
            AlignmentPolicy::Preferred if plan.why.contains("numa") => Nearness::Level(Level::Numa),
            _ => plan.nearness,
        }
    }

    fn check(&self, node: usize, busy_gpus: u16, busy_nics: u16) -> Result<(), TestCaseError> {
        let names: Vec<_> = self.view.inventory().node_names().collect();
        let node: &str = names[node % names.len()];
        let devices = self.devices(node);
        let mut state = AllocatedState::new();
        let gpus = keep(devices.gpus.iter(), busy_gpus, &mut state);
        let nics = keep(devices.nics.iter(), busy_nics, &mut state);
        let free = Devices { gpus, nics };
        let near = Near::new(devices.topology, self.promise());
        let possible = self.is_possible(&near, &free) && self.serves(node);
        let found = self.allocate(node, &state)?;
        let what = format!("{} on {node}, free {free:?}", self.name);
        match (&found, self.planned.plan.policy) {
            (None, AlignmentPolicy::Required) => prop_assert!(!possible, "nothing: {what}"),
            (None, AlignmentPolicy::Preferred) => {
                let enough = free.gpus.len() >= self.gpus && free.nics.len() >= self.nics;
                prop_assert!(!enough, "nothing: {what}");
            }
            (Some(got), policy) => {
                let given = given(&devices, got);
                let aligned = self.is_aligned(&near, &devices, got, &given);
                let must = policy == AlignmentPolicy::Required || possible;
                prop_assert!(aligned || !must, "not aligned: {what}: {given:?}");
                prop_assert!(given.gpus.iter().all(|gpu| free.gpus.contains(gpu)), "{what}");
                prop_assert!(given.nics.iter().all(|nic| free.nics.contains(nic)), "{what}");
                prop_assert_eq!((given.gpus.len(), given.nics.len()), (self.gpus, self.nics));
            }
        }
        Ok(())
    }

    /// A plan may leave out machines; it then says so.
    fn serves(&self, node: &str) -> bool {
        self.planned.plan.machines.iter().any(|(name, serves)| name == node && *serves)
    }

    fn devices<'a>(&'a self, node: &'a str) -> NodeDevices<'a> {
        let mut devices = NodeDevices::of(&self.view, node).unwrap();
        // A claim leaves out what is slow or down now.
        devices.nics.retain(|_, nic| {
            is_true(nic, attribute::dranet::RDMA)
                && !is_true(nic, attribute::DEGRADED)
                && text(nic, attribute::PORT_STATE).is_none_or(|state| state == PORT_ACTIVE)
        });
        devices
    }

    fn allocate(
        &self,
        node: &str,
        state: &AllocatedState,
    ) -> Result<Option<ClaimAllocation>, TestCaseError> {
        let limits = Limits::steps(10 * Policy::default().max_steps);
        let claims = std::slice::from_ref(&self.claim);
        let inventory = self.view.inventory();
        let attempt = allocate(inventory, node, claims, state, self.view.settings(), limits);
        match attempt.outcome {
            Outcome::Allocated(mut claims) => Ok(claims.pop()),
            Outcome::NoFit(_) => Ok(None),
            other => Err(TestCaseError::fail(format!("{}: {other:?}", self.name))),
        }
    }

    /// Each GPU with the NICs of its own request, where requests say so.
    fn is_aligned(
        &self,
        near: &Near<'_>,
        devices: &NodeDevices<'_>,
        got: &ClaimAllocation,
        given: &Devices,
    ) -> bool {
        let results = results(devices, got);
        let block = |request: &str| request.split(['-', '/']).nth(1).map(str::to_owned);
        let by_pairs = results.iter().any(|(.., request)| request.starts_with("gpu-"));
        if !by_pairs {
            return self.is_possible(near, given);
        }
        let gpus = || results.iter().filter(|(_, is_gpu, _)| *is_gpu);
        let nics = || results.iter().filter(|(_, is_gpu, _)| !*is_gpu);
        gpus().all(|(gpu, _, request)| {
            let mut own = nics().filter(|(.., nic)| block(nic) == block(request));
            own.all(|(nic, ..)| near.is_near(*gpu, *nic))
        })
    }
}

fn given(devices: &NodeDevices<'_>, got: &ClaimAllocation) -> Devices {
    let mut given = Devices::default();
    for (address, is_gpu, _) in results(devices, got) {
        let list = if is_gpu { &mut given.gpus } else { &mut given.nics };
        list.push(address);
    }
    given
}

/// Address, whether it is a GPU, and request of each device given.
fn results(devices: &NodeDevices<'_>, got: &ClaimAllocation) -> Vec<(PciAddress, bool, String)> {
    let found = got.results.iter().map(|result| {
        let all = devices.gpus.values().chain(devices.nics.values());
        let device = all.into_iter().find(|device| *device.id() == result.device).unwrap();
        let address = text(device, attribute::PCI_BUS_ID).unwrap().parse().unwrap();
        (address, devices.gpus.contains_key(&address), result.request.to_string())
    });
    found.collect()
}

/// The devices whose bit is not set; the others are marked as in use.
fn keep<'a>(
    devices: impl Iterator<Item = (&'a PciAddress, &'a &'a Device)>,
    busy: u16,
    state: &mut AllocatedState,
) -> Vec<PciAddress> {
    let mut free = Vec::new();
    for (index, (address, device)) in devices.enumerate() {
        if busy & (1 << index) == 0 {
            free.push(*address);
        } else {
            state.insert(device.id().clone());
        }
    }
    free
}

#[test]
fn the_allocator_finds_what_brute_force_finds_and_nothing_worse() {
    assert!(CASES.len() > 200, "{} cases", CASES.len());
    let config = Config {
        cases: STATES,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Config::default()
    };
    // Half of the states are nearly empty or nearly full.
    let busy = || prop_oneof![any::<u16>(), (any::<u16>(), any::<u16>()).prop_map(|(a, b)| a & b)];
    let states = (0..CASES.len(), 0..4_usize, busy(), busy());
    let result = TestRunner::new(config)
        .run(&states, |(case, node, gpus, nics)| CASES[case].check(node, gpus, nics));
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn a_patched_pod_is_not_patched_again() {
    for case in CASES.iter() {
        let again = admit(&case.patched, &case.view, &Policy::default()).unwrap();
        assert!(again.planned.is_none(), "{}", case.name);
        assert_eq!(again.pod, case.patched, "{}", case.name);
    }
}
