//! The law of fleets: the machines of a pod's own node decide what it gets, and nothing else.
//!
//! Random fleets have nodes of several types, some with lost devices, and machines that are only
//! remembered. On each node and in each state, a pod gets what it would get if the node were the only
//! one, and no pod waits that the node could serve as near as the plan says. In fleets of several
//! types, where a claim may have no room for all, a pod never gets less than the plan says, and never
//! less because of remembered machines.

use crate::brute_force::{Devices, Near};
use crate::cluster::*;
use crate::laws::usable;
use admission::admit::admit;
use admission::nearness::Nearness;
use admission::plan::{Plan, PlannedMachine, Policy};
use cluster_model::node_devices::NodeDevices;
use cluster_model::view::{ClusterView, Index as _};
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::{Config, TestRunner};
use publication::sharing::SharingArgs;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use topology_graph::Level;

/// Random fleets; `PROPTEST_CASES` sets another number.
const FLEETS: u32 = 40;

/// The number that proptest takes without the variable.
const UNASKED: u32 = 256;

/// Machines of several types, each healthy and with some lost devices.
pub(crate) static MACHINES: LazyLock<Vec<Built>> = LazyLock::new(|| {
    let types = [GB300, H100.with(Gpus::Nvidia), A100, HGX, A3];
    types
        .into_iter()
        .flat_map(|machine| {
            let healthy = Built::new(machine, &[], &SharingArgs::default());
            let topology = healthy.topology();
            let gpus: Vec<_> = topology.gpus().iter().map(|gpu| gpu.address).collect();
            let nics: Vec<_> = topology.nics().iter().map(|nic| nic.address).collect();
            let lost =
                [vec![gpus[0]], vec![gpus[gpus.len() - 1]], vec![nics[0]], vec![gpus[1], nics[0]]];
            let broken = lost.map(|lost| Built::new(machine, &lost, &SharingArgs::default()));
            std::iter::once(healthy).chain(broken).collect::<Vec<_>>()
        })
        .collect()
});

pub(crate) const PODS: &[(u32, &[(&str, &str)])] = &[
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "2"), ("pairing", "group")]),
    (1, &[("aligned-nics", "1"), ("alignment", "numa")]),
    (4, &[("aligned-nics", "4")]),
];

/// A random fleet.
#[derive(Clone, Debug)]
struct Fleet {
    /// Indices of the machines that are present.
    machines: Vec<usize>,
    /// Indices of those that are only remembered.
    remembered: Vec<usize>,
    /// The index of the pod.
    asked: usize,
    is_preferred: bool,
    /// The busy GPUs and NICs of each node.
    busy: Vec<(u16, u16)>,
}

fn fleets() -> impl Strategy<Value = Fleet> {
    let all: Vec<usize> = (0..MACHINES.len()).collect();
    let machines = subsequence(all.clone(), 1..7);
    let remembered = subsequence(all, 0..5);
    let busy = prop::collection::vec((any::<u16>(), any::<u16>()), 7);
    let parts = (machines, remembered, 0..PODS.len(), any::<bool>(), busy);
    parts.prop_map(|(machines, remembered, asked, is_preferred, busy)| Fleet {
        machines,
        remembered,
        asked,
        is_preferred,
        busy,
    })
}

/// A cluster with these nodes, `node-0` and on.
fn present(machines: &[usize]) -> ClusterView {
    let mut view = cluster(&[]);
    for (index, machine) in machines.iter().enumerate() {
        MACHINES[*machine].put(&mut view, &format!("node-{index}"), index);
    }
    view
}

/// Adds machines that are only remembered.
pub(crate) fn remember(view: &mut ClusterView, machines: &[&Built]) {
    let entries = machines.iter().enumerate().map(|(index, machine)| {
        let remembered = machine.remembered(100 + index);
        (format!("m{index}"), ByteString(remembered.encode().unwrap()))
    });
    let map = ConfigMap { binary_data: Some(entries.collect()), ..ConfigMap::default() };
    view.apply(map).unwrap();
}

fn plan(view: &ClusterView, gpus: u32, annotations: &[(&str, &str)]) -> Result<Plan, String> {
    let pod = pod("nvidia.com/gpu", gpus, annotations);
    let verdict = admit(&pod, view, &Policy::default()).map_err(|error| error.to_string())?;
    Ok(verdict.planned.unwrap().plan)
}

/// What a pod gets on a node with these devices in use: GPUs and NICs, or nothing.
fn given(
    view: &ClusterView,
    plan: &Plan,
    devices: &NodeDevices<'_>,
    state: &AllocatedState,
) -> Result<Option<Devices>, TestCaseError> {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim);
    let claims = [claim.map_err(|error| TestCaseError::fail(error.to_string()))?];
    let limits = Limits::steps(Policy::default().max_steps);
    let attempt = allocate(view.inventory(), devices.node, &claims, state, view.settings(), limits);
    match attempt.outcome {
        Outcome::NoFit(_) => Ok(None),
        Outcome::Allocated(claims) => {
            let mut given = Devices::default();
            for result in claims.iter().flat_map(|claim| &claim.results) {
                let mut gpus = devices.gpus.iter().filter(|(_, it)| *it.id() == result.device);
                let mut nics = devices.nics.iter().filter(|(_, it)| *it.id() == result.device);
                given.gpus.extend(gpus.next().map(|(address, _)| *address));
                given.nics.extend(nics.next().map(|(address, _)| *address));
            }
            Ok(Some(given))
        }
        other => Err(TestCaseError::fail(format!("{other:?}"))),
    }
}

/// Marks devices as in use; returns the free ones.
fn occupy(devices: &NodeDevices<'_>, (gpus, nics): (u16, u16)) -> (AllocatedState, Devices) {
    let (mut state, mut free) = (AllocatedState::new(), Devices::default());
    for (index, (address, gpu)) in devices.gpus.iter().enumerate() {
        if gpus >> index & 1 == 0 {
            free.gpus.push(*address);
        } else {
            state.insert(gpu.id().clone());
        }
    }
    for (index, (address, nic)) in devices.nics.iter().enumerate() {
        if nics >> index & 1 == 0 {
            free.nics.push(*address);
        } else {
            state.insert(nic.id().clone());
        }
    }
    (state, free)
}

/// The pod of a fleet.
struct Asked {
    gpus: u32,
    nics: usize,
    annotations: Vec<(&'static str, &'static str)>,
    is_each: bool,
    is_preferred: bool,
}

impl Asked {
    fn new(fleet: &Fleet) -> Self {
        let (gpus, annotations) = PODS[fleet.asked];
        let is_preferred = fleet.is_preferred;
        let policy = if is_preferred { "preferred" } else { "required" };
        Self {
            gpus,
            nics: annotations[0].1.parse().unwrap(),
            is_each: gpus > 1 && !annotations.contains(&("pairing", "group")),
            annotations: [annotations, &[("alignment-policy", policy)]].concat(),
            is_preferred,
        }
    }

    fn plan(&self, view: &ClusterView) -> Result<Plan, String> {
        plan(view, self.gpus, &self.annotations)
    }

    /// Returns true if the devices include enough that are this near.
    fn fits(&self, near: &Near<'_>, from: &Devices) -> bool {
        let gpus = self.gpus as usize;
        if self.is_each {
            near.each(from, gpus, self.nics / gpus)
        } else {
            near.group(from, gpus, self.nics)
        }
    }
}

fn check(fleet: &Fleet) -> Result<(), TestCaseError> {
    let (asked, machines) = (Asked::new(fleet), &fleet.machines);
    let without = present(machines);
    let mut view = present(machines);
    let remembered: Vec<_> = fleet.remembered.iter().map(|index| &MACHINES[*index]).collect();
    remember(&mut view, &remembered);
    let before = asked.plan(&without);
    let together = match asked.plan(&view) {
        Ok(plan) => plan,
        Err(denial) => {
            prop_assert!(before.is_err(), "denied with remembered machines only: {denial}");
            for (index, machine) in machines.iter().enumerate() {
                let mut alone = cluster(&[]);
                MACHINES[*machine].put(&mut alone, "node", index);
                let found = asked.plan(&alone).map(|plan| plan.join);
                prop_assert!(found.is_err(), "denied in the fleet only: {denial}, alone {found:?}");
            }
            return Ok(());
        }
    };
    prop_assert!(together.steps <= Policy::default().max_steps, "{together:?}");
    for index in 0..machines.len() {
        check_node(fleet, &asked, (&view, &together), index)?;
        if let Ok(before) = &before {
            check_remembered(fleet, &asked, [(&without, before), (&view, &together)], index)?;
        }
    }
    Ok(())
}

/// The plan for a node.
fn planned<'p>(plan: &'p Plan, name: &str) -> &'p PlannedMachine {
    plan.machines.iter().find(|it| it.nodes.iter().any(|node| node == name)).unwrap()
}

/// On a node, the pod gets what the plan says, and with one type what it would get on the node alone.
fn check_node(
    fleet: &Fleet,
    asked: &Asked,
    (view, together): (&ClusterView, &Plan),
    index: usize,
) -> Result<(), TestCaseError> {
    let machines = &fleet.machines;
    let name = format!("node-{index}");
    let mut alone = cluster(&[]);
    MACHINES[machines[index]].put(&mut alone, &name, index);
    let devices = usable(view, &name);
    let (state, free) = occupy(&devices, fleet.busy[index]);
    let in_fleet = given(view, together, &devices, &state)?;
    let what = format!("{fleet:?} on {name}, free {free:?}: {together:?}");
    let planned = planned(together, &name);
    let one_type = machines.iter().all(|it| it / 5 == machines[0] / 5);
    // A claim may have no room for several types; then the plan names the nodes.
    prop_assert!(planned.is_served || !one_type || !planned.could, "left out: {what}");
    if !planned.is_served {
        return Ok(());
    }
    // As if it were the only node.
    if let Ok(own) = asked.plan(&alone) {
        let by_itself = given(&alone, &own, &usable(&alone, &name), &state)?;
        let far = |given: &Option<Devices>| {
            given.as_ref().map(|it| farthest(&devices, it, asked.is_each))
        };
        prop_assert!(by_itself.is_none() || in_fleet.is_some(), "waits because of others: {what}");
        // A claim may have no room for the cells of several types; then the plan names a farther
        // level.
        if !asked.is_preferred && one_type {
            let level = own.machines.first().and_then(|it| it.nearness);
            prop_assert!(planned.nearness <= level, "{level:?} alone: {what}");
        }
        if let (Some(fleet), Some(alone)) = (far(&in_fleet), far(&by_itself))
            && asked.is_preferred
        {
            // If types need different alternatives, each keeps the weakest of its levels, unless the
            // plan names it.
            let weakest = weakest(&devices);
            let is_near = alone <= weakest && planned.nearness.is_some();
            let most = if one_type { alone } else { weakest };
            prop_assert!(
                fleet <= most || !(one_type || is_near),
                "{fleet:?} instead of {alone:?}: {what}"
            );
        }
    }
    // As near as the plan says.
    if let Some(nearness) = planned.nearness.filter(|_| !asked.is_preferred) {
        let near = Near::new(devices.topology, nearness);
        prop_assert!(in_fleet.is_some() || !asked.fits(&near, &free), "waits: {what}");
        if let Some(got) = &in_fleet {
            prop_assert!(asked.fits(&near, got), "{got:?} is not {nearness}: {what}");
        }
    }
    Ok(())
}

/// With remembered machines, a node of any type serves the pod at least as near as without.
fn check_remembered(
    fleet: &Fleet,
    asked: &Asked,
    [(without, before), (view, together)]: [(&ClusterView, &Plan); 2],
    index: usize,
) -> Result<(), TestCaseError> {
    let name = format!("node-{index}");
    let (had, has) = (planned(before, &name), planned(together, &name));
    let what = || format!("{fleet:?} on {name}: {before:?}\n{together:?}");
    prop_assert!(has.is_served || !had.is_served, "left out for remembered ones: {}", what());
    prop_assert!(
        had.nearness.is_none() || (has.nearness.is_some() && has.nearness <= had.nearness),
        "farther because of remembered ones: {}",
        what()
    );
    let devices = usable(view, &name);
    let (state, _) = occupy(&devices, fleet.busy[index]);
    let got = given(view, together, &devices, &state)?;
    let old = given(without, before, &usable(without, &name), &state)?;
    let far = |given: &Devices| farthest(&devices, given, asked.is_each);
    prop_assert!(old.is_none() || got.is_some(), "waits because of remembered ones: {}", what());
    if let (Some(old), Some(got)) = (old, got) {
        let (old, got) = (far(&old), far(&got));
        prop_assert!(got <= old, "{got} instead of {old}: {}", what());
    }
    Ok(())
}

/// The levels of paths, near to far.
const LEVELS: [Nearness; 5] = [
    Nearness::Level(Level::Switch),
    Nearness::Level(Level::RootPort),
    Nearness::Level(Level::Root),
    Nearness::Level(Level::Numa),
    Nearness::Level(Level::Socket),
];

/// The index of the farthest of them that counts as near: a socket, if some has several NUMA nodes.
fn weakest(devices: &NodeDevices<'_>) -> usize {
    let cells = |level| {
        let cells = devices.topology.cells(level).into_iter();
        cells.map(|cell| (cell.gpus, cell.nics)).collect::<BTreeSet<_>>()
    };
    let is_socket = cells(Level::Socket) != cells(Level::Numa);
    if is_socket { LEVELS.len() - 1 } else { LEVELS.len() - 2 }
}

/// The index of the farthest path that the devices need: of each GPU to its own NICs, or between all.
fn farthest(devices: &NodeDevices<'_>, given: &Devices, is_each: bool) -> usize {
    let (gpus, nics) = (given.gpus.len(), given.nics.len());
    let is_near = |level: &Nearness| {
        let near = Near::new(devices.topology, *level);
        if is_each { near.each(given, gpus, nics / gpus) } else { near.group(given, gpus, nics) }
    };
    LEVELS.iter().position(is_near).unwrap_or(LEVELS.len())
}

#[test]
fn the_machines_of_a_pods_own_node_decide_and_nothing_else() {
    let asked = Config::default().cases;
    let config = Config::with_cases(if asked == UNASKED { FLEETS } else { asked });
    let result = TestRunner::new(config).run(&fleets(), |fleet| check(&fleet));
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Two broken nodes of one type: the claim has no steps for pairs, switches and sockets, and pairs are
/// no nearer than the switch.
#[test]
fn pairs_are_left_out_before_a_rung_that_serves_more() {
    let mut busy = vec![(0, 0); 7];
    busy[1] = (3979, 160);
    let (machines, remembered) = (vec![11, 13], Vec::new());
    check(&Fleet { machines, remembered, asked: 2, is_preferred: true, busy }).unwrap();
}

/// An H100 node that lost a NIC beside a healthy one: the NIC that its GPU shares now is still the
/// own one of another GPU, so one constraint serves both nodes.
#[test]
fn a_lost_nic_takes_no_partner_away_from_another_gpu() {
    let (machines, remembered, busy) = (vec![5, 8], Vec::new(), vec![(0, 0); 7]);
    check(&Fleet { machines, remembered, asked: 5, is_preferred: false, busy }).unwrap();
    let (gpus, annotations) = PODS[5];
    let plan = plan(&present(&[5, 8]), gpus, annotations).unwrap();
    let levels: Vec<_> = plan.machines.iter().map(|it| it.nearness).collect();
    assert_eq!(levels, [Some(Nearness::Partner); 2]);
    assert_eq!(plan.join, "partner");
}
