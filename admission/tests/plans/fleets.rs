//! The law of fleets: the machines of a pod's own node decide what it gets, and nothing else.
//!
//! Random fleets have nodes of several types, some with lost devices, some only remembered. On each
//! node and in each state, a pod gets what it would get if the node were the only one, and no pod
//! waits that the node could serve as near as the plan says.

use crate::brute_force::{Devices, Near};
use crate::cluster::*;
use crate::laws::usable;
use admission::admit::admit;
use admission::nearness::Nearness;
use admission::plan::{Plan, Policy};
use cluster_model::node_devices::NodeDevices;
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use node_driver::decide::sharing::SharingArgs;
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::{Config, TestRunner};
use std::sync::LazyLock;
use topology_graph::Level;

/// Random fleets; `PROPTEST_CASES` can raise the number.
const FLEETS: u32 = 60;

/// Machines of several types, each healthy and with some lost devices.
static MACHINES: LazyLock<Vec<Built>> = LazyLock::new(|| {
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

const PODS: &[(u32, &[(&str, &str)])] = &[
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "2"), ("pairing", "group")]),
    (1, &[("aligned-nics", "1"), ("alignment", "numa")]),
    (4, &[("aligned-nics", "4")]),
];

/// A random fleet: indices of machines, a pod, its policy, and busy devices of each node.
type Fleet = (Vec<usize>, usize, bool, Vec<(u16, u16)>);

fn fleets() -> impl Strategy<Value = Fleet> {
    let machines = subsequence((0..MACHINES.len()).collect::<Vec<_>>(), 1..7);
    let busy = prop::collection::vec((any::<u16>(), any::<u16>()), 7);
    (machines, 0..PODS.len(), any::<bool>(), busy)
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

fn check((machines, asked, preferred, busy): Fleet) -> Result<(), TestCaseError> {
    let (gpus, annotations) = PODS[asked];
    let is_each = gpus > 1 && !annotations.contains(&("pairing", "group"));
    let mut annotations = annotations.to_vec();
    annotations.push(("alignment-policy", if preferred { "preferred" } else { "required" }));
    let nics = annotations[0].1.parse::<usize>();
    let nics = nics.map_err(|error| TestCaseError::fail(error.to_string()))?;
    let mut fleet = cluster(&[]);
    for (index, machine) in machines.iter().enumerate() {
        MACHINES[*machine].put(&mut fleet, &format!("node-{index}"), index);
    }
    let together = match plan(&fleet, gpus, &annotations) {
        Ok(plan) => plan,
        Err(denial) => {
            for (index, machine) in machines.iter().enumerate() {
                let mut alone = cluster(&[]);
                MACHINES[*machine].put(&mut alone, "node", index);
                let found = plan(&alone, gpus, &annotations).map(|plan| plan.join);
                prop_assert!(found.is_err(), "denied in the fleet only: {denial}, alone {found:?}");
            }
            return Ok(());
        }
    };
    for (index, machine) in machines.iter().enumerate() {
        let name = format!("node-{index}");
        let mut alone = cluster(&[]);
        MACHINES[*machine].put(&mut alone, &name, index);
        let devices = usable(&fleet, &name);
        let (state, free) = occupy(&devices, busy[index]);
        let in_fleet = given(&fleet, &together, &devices, &state)?;
        let what =
            format!("{machines:?} {gpus} {annotations:?} on {name}, free {free:?}: {together:?}");
        let mut planned = together.machines.iter();
        let planned = planned.find(|it| it.nodes.contains(&name)).unwrap();
        let one_type = machines.iter().all(|it| it / 5 == machines[0] / 5);
        // A claim may have no room for several types; then the plan names the nodes.
        prop_assert!(planned.is_served || !one_type || !planned.could, "left out: {what}");
        if !planned.is_served {
            continue;
        }
        // As if it were the only node.
        if let Ok(own) = plan(&alone, gpus, &annotations) {
            let by_itself = given(&alone, &own, &usable(&alone, &name), &state)?;
            let far =
                |given: &Option<Devices>| given.as_ref().map(|it| farthest(&devices, it, is_each));
            prop_assert!(
                by_itself.is_none() || in_fleet.is_some(),
                "waits because of others: {what}"
            );
            // A claim may have no room for the cells of several types; then the plan names a farther
            // level.
            if !preferred && one_type {
                let level = own.machines.first().and_then(|it| it.nearness);
                prop_assert!(planned.nearness <= level, "{level:?} alone: {what}");
            }
            // If types need different alternatives, each keeps some of its preferred levels.
            let has_room = preferred && one_type;
            let (in_fleet, alone) = (far(&in_fleet), far(&by_itself));
            if let (Some(fleet), Some(alone), true) = (in_fleet, alone, has_room) {
                prop_assert!(fleet <= alone, "{fleet:?} instead of {alone:?}: {what}");
            }
        }
        // As near as the plan says.
        if let Some(nearness) = planned.nearness.filter(|_| !preferred) {
            let near = Near::new(devices.topology, nearness);
            let fits = |near: &Near<'_>, from: &Devices| {
                if is_each {
                    near.each(from, gpus as usize, nics / gpus as usize)
                } else {
                    near.group(from, gpus as usize, nics)
                }
            };
            prop_assert!(in_fleet.is_some() || !fits(&near, &free), "waits: {what}");
            if let Some(got) = &in_fleet {
                prop_assert!(fits(&near, got), "{got:?} is not {nearness}: {what}");
            }
        }
    }
    Ok(())
}

/// The farthest path that the devices need: of each GPU to its own NICs, or between all.
fn farthest(devices: &NodeDevices<'_>, given: &Devices, is_each: bool) -> usize {
    let levels = [
        Nearness::Level(Level::Switch),
        Nearness::Level(Level::RootPort),
        Nearness::Level(Level::Root),
        Nearness::Level(Level::Numa),
    ];
    let (gpus, nics) = (given.gpus.len(), given.nics.len());
    let is_near = |level: &Nearness| {
        let near = Near::new(devices.topology, *level);
        if is_each { near.each(given, gpus, nics / gpus) } else { near.group(given, gpus, nics) }
    };
    levels.iter().position(is_near).unwrap_or(levels.len())
}

#[test]
fn the_machines_of_a_pods_own_node_decide_and_nothing_else() {
    let config = Config::with_cases(Config::default().cases.min(FLEETS));
    let result = TestRunner::new(config).run(&fleets(), check);
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
    check((vec![11, 13], 2, true, busy)).unwrap();
}
