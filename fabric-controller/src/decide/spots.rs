//! What the scheduler is placing on a fabric, so that no group is counted on places that it may take.

use cluster_model::fabric_level::{FabricLevel, LevelDomain};
use cluster_model::room::Ask;
use std::collections::HashSet;
use std::sync::Arc;

/// A kind of pod that the scheduler places, and the domains in which it does.
pub(super) type Spot = (Arc<Ask>, Vec<LevelDomain>);

/// How well a group fits on a fabric.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// On how many domains of each level that it asks for, widest first; behind every other number
    /// where a preferred level is not to be had.
    pub(super) domains: Vec<usize>,
    /// The places left for the scarcest kind of its pods.
    pub(super) rest: usize,
    /// What the scheduler will place.
    pub(super) spots: HashSet<Spot>,
}

/// Returns true if the scheduler would take the same places for both. Labels of pods matter only where
/// others have anti-affinity.
pub(super) fn are_alike(some: &HashSet<Spot>, others: &HashSet<Spot>, with_labels: bool) -> bool {
    if some == others || with_labels {
        return some == others;
    }
    let unlabelled = |spots: &HashSet<Spot>| {
        let spots = spots.iter().map(|(kind, domains)| (kind.without_labels(), domains.clone()));
        spots.collect::<HashSet<_>>()
    };
    unlabelled(some) == unlabelled(others)
}

/// Returns true if two sets of pods are in different domains of one level.
pub(super) fn are_apart(some: &HashSet<Spot>, others: &HashSet<Spot>) -> bool {
    let names = |spots: &HashSet<Spot>, level: FabricLevel| {
        spots
            .iter()
            .map(|(_, domains)| {
                domains
                    .iter()
                    .find(|domain| domain.level == level)
                    .map(|domain| domain.name.clone())
            })
            .collect::<Option<HashSet<String>>>()
    };
    FabricLevel::ALL.into_iter().any(|level| match (names(some, level), names(others, level)) {
        (Some(some), Some(others)) => some.is_disjoint(&others),
        _ => false,
    })
}
