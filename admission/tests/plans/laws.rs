//! Laws of plans: whatever is in use, the scheduler's allocator allocates devices that
//! are as near as guaranteed, and does so whenever they are free.

use crate::brute_force::{Devices, Near};
use crate::cluster::*;
use admission::admit::{Planned, Verdict, admit};
use admission::intent::{AlignmentPolicy, Pairing};
use admission::nearness::Nearness;
use admission::plan::Policy;
use cluster_model::names::{PORT_ACTIVE, attribute};
use cluster_model::node_devices::{NodeDevices, is_true, text};
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, Claim, ClaimAllocation, ClaimName, Device, Limits, Outcome, allocate,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use topology_graph::{Level, NicRole, PciAddress};

/// Number of random states, over all cases; `PROPTEST_CASES` can raise it.
const STATES: u32 = 1_000;

/// Number of random states of machines that were added later.
const GROWN_STATES: u32 = 2_000;

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

/// Pods, nics and policies on a cluster: name, view, intent.
type Asked = (String, Arc<ClusterView>, Intent);
type Intent = (u32, &'static str, Pairing, Option<&'static str>, &'static str);

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    asked().into_iter().filter_map(|(name, view, intent)| case(&name, &view, intent)).collect()
});

fn asked() -> Vec<Asked> {
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
        ("intel gb300", &[GB300.with(Gpus::Intel)]),
        ("intel h100", &[H100.with(Gpus::Intel)]),
        ("intel gb300 and gb200", &[GB300.with(Gpus::Intel), GB200.with(Gpus::Intel)]),
        ("intel hgx", &[HGX.with(Gpus::Intel)]),
    ];
    let mut asked = Vec::new();
    for (name, machines) in clusters {
        let view = Arc::new(cluster(machines));
        for (gpus, nics, pairing) in INTENTS {
            for level in [None, Some("numa"), Some("root"), Some("root-port"), Some("switch")] {
                for policy in ["required", "preferred"] {
                    let intent = (*gpus, *nics, *pairing, level, policy);
                    asked.push(((*name).to_owned(), Arc::clone(&view), intent));
                }
            }
        }
    }
    asked
}

fn written(name: &str, (gpus, nics, pairing, level, policy): Intent) -> Value {
    let word = if pairing == Pairing::Each { "each" } else { "group" };
    let mut annotations =
        vec![("aligned-nics", nics), ("pairing", word), ("alignment-policy", policy)];
    annotations.extend(level.map(|level| ("alignment", level)));
    let resource = match name {
        "mi300x" => "amd.com/gpu",
        _ if name.starts_with("intel") => "gpu.intel.com/xe",
        _ => "nvidia.com/gpu",
    };
    pod(resource, gpus, &annotations)
}

/// The case; `None` if the pod is denied, which another law covers.
fn case(name: &str, view: &Arc<ClusterView>, intent: Intent) -> Option<Case> {
    let pod = written(name, intent);
    let Verdict { pod: patched, planned, .. } = admit(&pod, view, &Policy::default()).ok()?;
    let planned = planned?;
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &planned.plan.claim).unwrap();
    let (gpus, nics, pairing, ..) = intent;
    Some(Case {
        name: format!("{name}: {intent:?}"),
        view: Arc::clone(view),
        planned,
        patched,
        claim,
        gpus: gpus as usize,
        nics: nics.parse().unwrap(),
        pairing,
    })
}

/// Whether free devices satisfy the pairing.
fn is_possible(
    pairing: Pairing,
    near: &Near<'_>,
    free: &Devices,
    gpus: usize,
    nics: usize,
) -> bool {
    match pairing {
        Pairing::Group => near.group(free, gpus, nics),
        Pairing::Each => near.each(free, gpus, nics / gpus),
        Pairing::Shared => unreachable!("no user names it"),
    }
}

impl Case {
    fn is_possible(&self, near: &Near<'_>, free: &Devices) -> bool {
        is_possible(self.pairing, near, free, self.gpus, self.nics)
    }

    /// The farthest level that still counts as aligned on a node; `None` if the claim is for any
    /// devices there.
    fn promise(&self, node: &str) -> Option<Nearness> {
        let plan = &self.planned.plan;
        let mut machines = plan.machines.iter();
        let own = machines.find(|machine| machine.nodes.iter().any(|name| name == node));
        match (plan.intent.policy, own.and_then(|machine| machine.nearness)) {
            (AlignmentPolicy::Preferred, None) => None,
            // With several types, a claim may have room for some levels of each only.
            (AlignmentPolicy::Preferred, _) if plan.machines.len() > 1 => None,
            (AlignmentPolicy::Preferred, _) if plan.why.contains("numa") => {
                Some(Nearness::Level(Level::Numa))
            }
            (_, Some(nearness)) => Some(nearness),
            (AlignmentPolicy::Required, None) => Some(plan.nearness),
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
        let promise = self.promise(node);
        let near = Near::new(devices.topology, promise.unwrap_or(self.planned.plan.nearness));
        let possible = promise.is_some() && self.is_possible(&near, &free) && self.serves(node);
        let found = self.allocate(node, &state)?;
        let what = format!("{} on {node}, free {free:?}", self.name);
        match (&found, self.planned.plan.intent.policy) {
            (None, AlignmentPolicy::Required) => prop_assert!(!possible, "nothing: {what}"),
            (None, AlignmentPolicy::Preferred) => {
                let enough = free.gpus.len() >= self.gpus && free.nics.len() >= self.nics;
                prop_assert!(!(enough && self.serves(node)), "nothing: {what}");
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

    /// Devices that are free and as near as the plan's pairs are allocated.
    fn check_no_waste(&self, busy_gpus: u16, busy_nics: u16) -> Result<(), TestCaseError> {
        let node = self.view.inventory().node_names().next().unwrap();
        let devices = self.devices(node);
        let mut state = AllocatedState::new();
        let gpus = keep(devices.gpus.iter(), busy_gpus, &mut state);
        let nics = keep(devices.nics.iter(), busy_nics, &mut state);
        let free = Devices { gpus, nics };
        let near = Near::like_pairs(devices.topology);
        if self.planned.plan.intent.policy == AlignmentPolicy::Required
            && self.is_possible(&near, &free)
        {
            let found = self.allocate(node, &state)?;
            prop_assert!(found.is_some(), "{} waits, free {free:?}", self.name);
        }
        Ok(())
    }

    /// A plan may exclude machines, and then says so.
    fn serves(&self, node: &str) -> bool {
        let mut machines = self.planned.plan.machines.iter().filter(|machine| machine.is_served);
        machines.any(|machine| machine.nodes.iter().any(|name| name == node))
    }

    fn devices<'a>(&'a self, node: &'a str) -> NodeDevices<'a> {
        usable(&self.view, node)
    }

    fn allocate(
        &self,
        node: &str,
        state: &AllocatedState,
    ) -> Result<Option<ClaimAllocation>, TestCaseError> {
        let limits = Limits::steps(Policy::default().max_steps);
        let claims = std::slice::from_ref(&self.claim);
        let inventory = self.view.inventory();
        let attempt = allocate(inventory, node, claims, state, self.view.settings(), limits);
        match attempt.outcome {
            Outcome::Allocated(mut claims) => Ok(claims.pop()),
            Outcome::NoFit(_) => Ok(None),
            other => Err(TestCaseError::fail(format!("{}: {other:?}", self.name))),
        }
    }

    /// Whether each GPU is aligned with the NICs of its own request, if the requests say
    /// so.
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

/// The devices that a claim can get, without those that are degraded or down now.
pub(crate) fn usable<'a>(view: &'a ClusterView, node: &'a str) -> NodeDevices<'a> {
    let mut devices = NodeDevices::new(view, node).unwrap();
    devices.nics.retain(|_, nic| {
        is_true(nic, attribute::dranet::RDMA)
            && nic.nic_role() == NicRole::Compute
            && !is_true(nic, attribute::DEGRADED)
            && text(nic, attribute::PORT_STATE).is_none_or(|state| state == PORT_ACTIVE)
    });
    devices
}

fn given(devices: &NodeDevices<'_>, got: &ClaimAllocation) -> Devices {
    let mut given = Devices::default();
    for (address, is_gpu, _) in results(devices, got) {
        let list = if is_gpu { &mut given.gpus } else { &mut given.nics };
        list.push(address);
    }
    given
}

/// Address, kind (true for a GPU) and request of each allocated device.
fn results(devices: &NodeDevices<'_>, got: &ClaimAllocation) -> Vec<(PciAddress, bool, String)> {
    let found = got.results.iter().map(|result| {
        let all = devices.gpus.values().chain(devices.nics.values());
        let device = all.into_iter().find(|device| *device.id() == result.device).unwrap();
        let address = text(device, attribute::PCI_BUS_ID).unwrap().parse().unwrap();
        (address, devices.gpus.contains_key(&address), result.request.to_string())
    });
    found.collect()
}

/// The devices whose bit is not set. The others are marked as in use.
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
fn the_allocator_agrees_with_brute_force() {
    assert!(CASES.len() > 200, "{} cases", CASES.len());
    let config = Config::with_cases(Config::default().cases.max(STATES));
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
        // A new decision, without the template in the view, gives the same result.
        let again = admit(&case.patched, &case.view, &Policy::default()).unwrap();
        assert_eq!(again.pod, case.patched, "{}", case.name);
    }
}

/// A pod is denied exactly if no node could serve it with nothing in use. Exceptions are
/// listed: denials because of a claim's limits or of the search's length.
#[test]
fn a_denied_pod_never_fits() {
    let mut too_long = String::new();
    for (name, view, intent) in asked() {
        let (gpus, nics, pairing, level, policy) = intent;
        if name.starts_with("intel") && policy == "preferred" {
            continue; // Needs an attribute that distinguishes kinds of devices.
        }
        let Err(error) = admit(&written(&name, intent), &view, &Policy::default()) else {
            continue;
        };
        let level = level.map_or(Level::Numa, |level| level.parse().unwrap());
        let (gpus, nics) = (gpus as usize, nics.parse().unwrap());
        let fits = |node: &str| {
            let devices = usable(&view, node);
            let free = Devices {
                gpus: devices.gpus.keys().copied().collect(),
                nics: devices.nics.keys().copied().collect(),
            };
            if policy == "preferred" {
                return free.gpus.len() >= gpus && free.nics.len() >= nics;
            }
            let near = Near::new(devices.topology, Nearness::Level(level));
            is_possible(pairing, &near, &free, gpus, nics)
        };
        if view.inventory().node_names().any(|node| fits(node)) {
            let limits = ["search steps", "requests or constraints", "alternatives"];
            let limit = limits.iter().find(|limit| error.to_string().contains(**limit));
            let limit = limit.unwrap_or_else(|| panic!("{name}: {intent:?}: {error}"));
            writeln!(too_long, "{name}: {intent:?}: {limit}").unwrap();
        }
    }
    insta::assert_snapshot!(too_long);
}

/// A template stays valid when machines of other shapes are added: on them the claim gets
/// devices as near as guaranteed or none, and on the old machines the same as before.
#[test]
fn a_plan_stays_valid_when_machines_are_added() {
    let more = [GB300, H100.with(Gpus::Nvidia), A100, P4D, HGX, A3];
    let mut grown = Vec::new();
    for (name, machine) in [("gb300", GB300), ("h100", H100), ("a100", A100), ("hgx", HGX)] {
        let view = Arc::new(cluster(&[&[machine][..], &more].concat()));
        let before = asked().into_iter().filter(|(known, ..)| known == name);
        grown.extend(before.filter_map(|(name, small, intent)| {
            Some(Case { view: Arc::clone(&view), ..case(&name, &small, intent)? })
        }));
    }
    assert!(grown.len() > 100, "{} cases", grown.len());
    let states = (0..grown.len(), 0..=more.len(), any::<u16>(), any::<u16>());
    let result = TestRunner::new(Config::with_cases(GROWN_STATES))
        .run(&states, |(case, node, gpus, nics)| grown[case].check(node, gpus, nics));
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// With a plan for the topology's pairs, no pod waits while other free devices are as
/// near as a pair.
#[test]
fn no_pod_waits_while_devices_as_near_as_pairs_are_free() {
    let alone = |case: &&Case| case.view.inventory().node_names().count() == 1;
    let pairs = |case: &&Case| case.planned.plan.nearness == Nearness::Partner;
    let cases: Vec<_> = CASES.iter().filter(alone).filter(pairs).collect();
    assert!(cases.len() > 20, "{} cases", cases.len());
    let states = (0..cases.len(), any::<u16>(), any::<u16>());
    let result = TestRunner::new(Config::with_cases(STATES))
        .run(&states, |(case, gpus, nics)| cases[case].check_no_waste(gpus, nics));
    if let Err(error) = result {
        panic!("{error}");
    }
}
