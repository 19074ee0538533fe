//! The law of preferred alignment on broken nodes: no empty node gives a pod more paths between NUMA
//! nodes than its best choice of devices has.
//!
//! Random fleets have nodes of one type or of two that lost random devices, some with NICs that are
//! degraded. The best choice is found by exhaustive search, from the graph alone.

use crate::cluster::*;
use crate::laws::usable;
use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster_model::node_devices::NodeDevices;
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use publication::sharing::SharingArgs;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use topology_graph::{PathKind, PciAddress};

/// Random fleets; `PROPTEST_CASES` sets another number.
const FLEETS: u32 = 60;

/// The number that proptest takes without the variable.
const UNASKED: u32 = 256;

const TYPES: [Machine; 4] = [GB300, H100, HGX, GB200];

/// GPUs, NICs, and whether each GPU is to have its own.
const PODS: &[(u32, u32, bool)] = &[
    (1, 1, false),
    (1, 2, false),
    (2, 1, false),
    (2, 2, false),
    (2, 2, true),
    (3, 3, false),
    (3, 3, true),
    (3, 2, false),
    (2, 4, false),
    (4, 4, false),
    (4, 4, true),
];

/// A node: its type, the GPUs and NICs that it lost, and the NICs that are degraded, as bits.
type Node = (usize, u8, u8, u8);

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    // Most devices are there: each bit is set in a quarter of the nodes.
    let bits = || (any::<u8>(), any::<u8>()).prop_map(|(one, other)| one & other);
    let rare = (bits(), bits()).prop_map(|(one, other)| one & other);
    let node = (bits(), bits(), rare);
    let types = (0..TYPES.len(), 0..TYPES.len(), any::<bool>());
    (types, prop::collection::vec((node, any::<bool>()), 1..6)).prop_map(
        |((one, other, both), all)| {
            let nodes = all.into_iter().map(|((gpus, nics, degraded), second)| {
                (if both && second { other } else { one }, gpus, nics, degraded)
            });
            nodes.collect()
        },
    )
}

fn kept<T: Copy>(all: impl Iterator<Item = T>, bits: u8) -> Vec<T> {
    all.enumerate().filter(|(index, _)| bits >> (index % 8) & 1 == 1).map(|(_, it)| it).collect()
}

fn built((machine, gpus, nics, degraded): Node) -> Built {
    static BUILT: LazyLock<Mutex<BTreeMap<Node, Built>>> = LazyLock::new(Mutex::default);
    let known = (machine, gpus, nics, degraded);
    if let Some(built) = BUILT.lock().unwrap().get(&known) {
        return built.clone();
    }
    let healthy = Built::new(TYPES[machine], &[], &SharingArgs::default()).topology();
    let lost_gpus = kept(healthy.gpus().iter().map(|gpu| gpu.address), gpus);
    let lost_nics = kept(healthy.nics().iter().map(|nic| nic.address), nics);
    let lost = [lost_gpus, lost_nics].concat();
    let built = Built::new(TYPES[machine], &lost, &SharingArgs::default());
    let built = built.with_nics(|index, nic| {
        if degraded >> (index % 8) & 1 == 1 {
            nic["attributes"]["dranet.io/degraded"] = json!({ "bool": true });
        }
    });
    BUILT.lock().unwrap().insert(known, built.clone());
    built
}

fn fleet(nodes: &[Node]) -> ClusterView {
    let mut view = cluster(&[]);
    for (index, node) in nodes.iter().enumerate() {
        built(*node).put(&mut view, &format!("node-{index}"), index);
    }
    view
}

fn plan(view: &ClusterView, (gpus, nics, each): (u32, u32, bool)) -> Option<Plan> {
    let (nics, pairing) = (nics.to_string(), if each { "each" } else { "group" });
    let annotations =
        [("aligned-nics", &*nics), ("pairing", pairing), ("alignment-policy", "preferred")];
    let pod = pod("nvidia.com/gpu", gpus, &annotations);
    Some(admit(&pod, view, &Policy::default()).ok()?.planned?.plan)
}

/// The fewest paths between NUMA nodes that GPUs and NICs of these can have.
fn far(devices: &NodeDevices<'_>, gpus: &[PciAddress], nics: &[PciAddress], each: bool) -> usize {
    let is_far =
        |gpu: PciAddress, nic: PciAddress| devices.topology.path(gpu, nic) == PathKind::Sys;
    let all = gpus.iter().flat_map(|gpu| nics.iter().map(move |nic| (*gpu, *nic)));
    if !each {
        return all.filter(|(gpu, nic)| is_far(*gpu, *nic)).count();
    }
    // Each GPU has as many NICs of its own: a matching with most near ones.
    let seats = gpus.iter().flat_map(|gpu| vec![*gpu; nics.len() / gpus.len()]);
    let seats: Vec<PciAddress> = seats.collect();
    let mut taken: Vec<Option<usize>> = vec![None; nics.len()];
    let near = |seat: usize, nic: usize| !is_far(seats[seat], nics[nic]);
    let matched = (0..seats.len())
        .filter(|seat| augment(*seat, &near, &mut taken, &mut vec![false; nics.len()]));
    seats.len() - matched.count()
}

fn augment(
    seat: usize,
    near: &impl Fn(usize, usize) -> bool,
    taken: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for nic in 0..taken.len() {
        if seen[nic] || !near(seat, nic) {
            continue;
        }
        seen[nic] = true;
        if taken[nic].is_none_or(|other| augment(other, near, taken, seen)) {
            taken[nic] = Some(seat);
            return true;
        }
    }
    false
}

fn subsets(all: &[PciAddress], size: usize) -> Vec<Vec<PciAddress>> {
    match all {
        _ if size == 0 => vec![Vec::new()],
        [] => Vec::new(),
        [first, rest @ ..] => {
            let with = subsets(rest, size - 1);
            let with = with.into_iter().map(|others| [vec![*first], others].concat());
            with.chain(subsets(rest, size)).collect()
        }
    }
}

/// The paths of the best choice of devices, or nothing if the node has not enough.
fn best(devices: &NodeDevices<'_>, (gpus, nics, each): (u32, u32, bool)) -> Option<usize> {
    let all: Vec<PciAddress> = devices.nics.keys().copied().collect();
    let nics = subsets(&all, nics as usize);
    let all: Vec<PciAddress> = devices.gpus.keys().copied().collect();
    let gpus = subsets(&all, gpus as usize);
    let all = gpus.iter().flat_map(|gpus| nics.iter().map(move |nics| (gpus, nics)));
    all.map(|(gpus, nics)| far(devices, gpus, nics, each)).min()
}

/// The paths of what a pod gets on the empty node.
fn given(view: &ClusterView, plan: &Plan, devices: &NodeDevices<'_>, each: bool) -> Option<usize> {
    let claims = [Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap()];
    let limits = Limits::steps(Policy::default().max_steps);
    let (inventory, settings) = (view.inventory(), view.settings());
    let state = AllocatedState::new();
    let found = allocate(inventory, devices.node, &claims, &state, settings, limits);
    let Outcome::Allocated(claims) = found.outcome else { return None };
    let results = &claims[0].results;
    let given = |id: &dra_allocator::DeviceId| results.iter().any(|it| it.device == *id);
    let gpus = devices.gpus.iter().filter(|(_, gpu)| given(gpu.id())).map(|(address, _)| *address);
    let nics = devices.nics.iter().filter(|(_, nic)| given(nic.id())).map(|(address, _)| *address);
    let (gpus, nics): (Vec<_>, Vec<_>) = (gpus.collect(), nics.collect());
    Some(far(devices, &gpus, &nics, each))
}

fn check(nodes: &[Node], pod: (u32, u32, bool)) -> Result<(), TestCaseError> {
    let view = fleet(nodes);
    let Some(plan) = plan(&view, pod) else { return Ok(()) };
    for index in 0..nodes.len() {
        let name = format!("node-{index}");
        let devices = usable(&view, &name);
        let (Some(best), Some(given)) = (best(&devices, pod), given(&view, &plan, &devices, pod.2))
        else {
            continue;
        };
        prop_assert!(given <= best, "{name} gives {given} paths, not {best}: {}", plan.note("t"));
    }
    Ok(())
}

#[test]
fn no_empty_node_gives_a_preferred_pod_more_paths_between_numa_nodes_than_needed() {
    let mut config = Config::default();
    if config.cases == UNASKED {
        config.cases = FLEETS;
    }
    let pods = proptest::sample::select(PODS);
    TestRunner::new(config).run(&(nodes(), pods), |(nodes, pod)| check(&nodes, pod)).unwrap();
}

/// A healthy node, and one that lost a GPU of one NUMA node and both NICs of the other.
#[test]
fn a_group_that_no_numa_node_has_room_for_has_half_of_its_paths_near() {
    let nodes = [(0, 0, 0, 0), (0, 0b0100, 0b0011, 0)];
    let view = fleet(&nodes);
    let pod = (2, 2, false);
    let plan = plan(&view, pod).unwrap();
    let far = |name| given(&view, &plan, &usable(&view, name), false);
    assert_eq!((far("node-0"), far("node-1")), (Some(0), Some(2)), "{}", plan.note("t"));
    let promised = plan.machines.iter().map(|machine| machine.nearness.is_some());
    assert_eq!(promised.filter(|is_near| *is_near).count(), 1, "{:?}", plan.machines);
}
