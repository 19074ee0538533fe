//! The protocol on a small cluster, with crashes between any two writes: every eviction leads to bound
//! pods or to a stop that is said, and no rule stays.

mod exhaustive;
mod world;

use super::step::End;
use proptest::prelude::*;
use world::{Trouble, World};

/// The most writes of a preemption here: rules, evictions, allocations, removals.
const WRITES: usize = 24;

#[test]
fn after_a_crash_at_any_two_writes_the_pods_are_bound() {
    for (pods, victims) in [(1, 1), (1, 2), (2, 1), (2, 3)] {
        for first in 0..WRITES {
            for second in 0..WRITES {
                let mut world = World::new(pods, victims);
                world.round(Some(first));
                world.round(Some(second));
                world.settle();
                let case = format!("{pods} for {victims}, crash after {first} and {second} writes");
                assert_eq!(world.ends.last(), Some(&End::Bound), "{case}");
                assert!(
                    world.ends.iter().all(|end| *end == End::Bound),
                    "{case}: {:?}",
                    world.ends
                );
                assert_eq!(world.evicted().len(), victims, "{case}");
                assert!(world.rules.is_empty(), "{case}");
                assert!(world.faults.is_empty(), "{case}: {:?}", world.faults);
            }
        }
    }
}

#[test]
fn nobody_is_evicted_if_a_budget_refuses() {
    let mut world = World::new(1, 2);
    world.happen(&Trouble::Budget(true));
    world.settle();
    assert!(matches!(&world.ends[..], [End::Stopped(why)] if why.reason() == "Refused"));
    assert!(world.evicted().is_empty() && world.rules.is_empty() && world.faults.is_empty());
}

#[test]
fn nobody_is_evicted_for_a_device_that_another_pod_has_got() {
    let mut world = World::new(1, 2);
    world.round(None);
    // It was chosen before kube-scheduler has seen the rule.
    world.hold_free("stranger");
    world.settle();
    assert!(matches!(&world.ends[..], [End::Stopped(why)] if why.reason() == "Changed"));
    assert!(world.evicted().is_empty() && world.rules.is_empty() && world.faults.is_empty());
}

#[test]
fn nobody_else_is_evicted_once_the_pod_is_gone() {
    let mut world = World::new(1, 2);
    world.round(None);
    world.happen(&Trouble::Tick(5));
    // The second eviction does not happen.
    world.round(Some(1));
    assert_eq!(world.evicted().len(), 1);
    world.happen(&Trouble::PodGone(0));
    world.settle();
    assert!(matches!(&world.ends[..], [End::Stopped(why)] if why.reason() == "PodGone"));
    assert_eq!(world.evicted().len(), 1);
    assert!(world.rules.is_empty() && world.faults.is_empty());
}

fn troubles() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        6 => (0usize..WRITES).prop_map(|writes| Trouble::Round(Some(writes))),
        4 => Just(Trouble::Round(None)),
        4 => (0i64..90).prop_map(Trouble::Tick),
        4 => (0usize..3).prop_map(Trouble::VictimEnds),
        4 => Just(Trouble::Schedule),
        1 => (0usize..3).prop_map(Trouble::VictimLeaves),
        1 => (0usize..2).prop_map(Trouble::PodGone),
        1 => (0usize..2).prop_map(Trouble::Elsewhere),
        1 => any::<bool>().prop_map(Trouble::Budget),
        1 => Just(Trouble::Stranger),
        1 => Just(Trouble::NodeGone),
        1 => (0usize..8).prop_map(Trouble::RuleGone),
    ]
}

proptest! {
    #[test]
    fn every_eviction_ends_in_bound_pods_or_in_a_stop_that_is_said(
        pods in 1usize..3,
        victims in 1usize..4,
        troubles in prop::collection::vec(troubles(), 0..24),
    ) {
        let mut world = World::new(pods, victims);
        for trouble in &troubles {
            world.happen(trouble);
        }
        world.settle();
        prop_assert!(world.rules.is_empty(), "{:?}", world.rules.keys());
        prop_assert!(
            world.evicted().is_empty() || world.is_bound() || world.has_said_stop(),
            "{:?}", world.ends
        );
        prop_assert!(!world.is_bound() || !world.ends.is_empty());
        prop_assert!(world.faults.is_empty(), "{:?}", world.faults);
    }
}
