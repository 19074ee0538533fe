//! All states that the protocol can reach on a small cluster, whatever happens and whenever a replica dies: from
//! each of them, what was begun ends. And two mistakes, which this search must find.

use super::super::step::Keep;
use super::world::{Trouble, World};
use proptest::test_runner::Config;
use std::collections::HashSet;

/// The most writes after which a replica dies: more than it makes here at once.
const WRITES: usize = 5;

/// All that can happen with so many pods and victims.
fn all(pods: usize, victims: usize) -> Vec<Trouble> {
    let mut all = vec![
        Trouble::Round(None),
        Trouble::Later,
        Trouble::Schedule,
        Trouble::Stranger,
        Trouble::NodeGone,
        Trouble::Budget(true),
        Trouble::Budget(false),
    ];
    all.extend((0..=WRITES).map(|writes| Trouble::Round(Some(writes))));
    for pod in 0..pods {
        all.extend([Trouble::PodGone(pod), Trouble::Elsewhere(pod)]);
    }
    for victim in 0..victims {
        all.extend([Trouble::VictimEnds(victim), Trouble::VictimLeaves(victim)]);
    }
    all.extend((0..=victims).map(Trouble::RuleGone));
    all
}

/// Tries everything that can happen in each state, and what comes of each state in the end. Returns the number
/// of states.
///
/// # Errors
///
/// The first state from which something goes wrong.
fn search(first: World, troubles: &[Trouble]) -> Result<usize, String> {
    let mut known = HashSet::from([first.state()]);
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        check(&world)?;
        for trouble in troubles {
            let mut next = world.clone();
            next.happen(trouble);
            if known.insert(next.state()) {
                open.push(next);
            }
        }
    }
    Ok(known.len())
}

/// Every eviction leads to bound pods or to a stop that is said, and no rule stays.
fn check(world: &World) -> Result<(), String> {
    let mut end = world.clone();
    end.settle();
    let is_told = end.evicted().is_empty() || end.is_bound() || end.has_said_stop();
    let is_ended = end.rules.is_empty() && (!end.is_bound() || !end.ends.is_empty());
    if is_told && is_ended && end.faults.is_empty() {
        return Ok(());
    }
    Err(format!("{:?}, {} rules stay, from {}", end.faults, end.rules.len(), world.state()))
}

#[test]
fn from_every_state_evictions_lead_to_bound_pods_or_to_a_stop_that_is_said() {
    // The others have 65,000 states: for a run with many cases of all properties.
    let sizes = [(1, 1), (2, 1), (1, 2)];
    let count = if Config::default().cases > 10_240 { sizes.len() } else { 1 };
    for (pods, victims) in &sizes[..count] {
        let states = search(World::new(*pods, *victims), &all(*pods, *victims)).unwrap();
        assert!(states > 1_000, "{states} states of {pods} pods and {victims} victims");
    }
}

/// A stranger takes a device that is no longer kept, although somebody was evicted for it.
#[test]
fn the_search_finds_rules_that_are_removed_too_early() {
    let mut world = World::new(1, 1);
    world.limits.keep = Keep::Rules;
    let found = search(world, &all(1, 1)).unwrap_err();
    assert!(found.starts_with("[], 0 rules stay"), "{found}");
}

/// A leader that was stopped for longer than its lease evicts for a pod that has gone meanwhile: why the work
/// of a leader makes no step after its lease (`Until` in `serve::lease`).
#[test]
fn the_search_finds_a_leader_that_goes_on_after_its_lease() {
    let late = [all(1, 1), vec![Trouble::Pause, Trouble::Resume]].concat();
    let found = search(World::new(1, 1), &late).unwrap_err();
    assert!(found.contains("evicted for a pod that is gone"), "{found}");
}
