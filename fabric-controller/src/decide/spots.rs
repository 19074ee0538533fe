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
    without_labels(some) == without_labels(others)
}

fn without_labels(spots: &HashSet<Spot>) -> HashSet<(Ask, &[LevelDomain])> {
    spots.iter().map(|(kind, domains)| (kind.without_labels(), domains.as_slice())).collect()
}

/// Returns true if two sets of pods are in different domains of one level.
pub(super) fn are_apart(some: &HashSet<Spot>, others: &HashSet<Spot>) -> bool {
    FabricLevel::ALL.into_iter().any(|level| {
        let domains = domains(some, level).zip(domains(others, level));
        domains.is_some_and(|(some, others)| some.is_disjoint(&others))
    })
}

/// The domains of a level that pods are in; `None` if one of them is in none.
fn domains(spots: &HashSet<Spot>, level: FabricLevel) -> Option<HashSet<&LevelDomain>> {
    spots.iter().map(|(_, domains)| domains.iter().find(|it| it.level == level)).collect()
}
