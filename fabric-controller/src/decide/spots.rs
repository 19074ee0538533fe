//! What the scheduler is placing on a fabric, so that no group is counted on places that it may take.

use super::super::requirements::PodRequirements;
use cluster_model::fabric_level::LevelDomain;
use std::collections::HashSet;
use std::sync::Arc;

/// A kind of pod that the scheduler places, and the domain in which it does.
pub(super) type Spot = (Arc<PodRequirements>, Option<LevelDomain>);

/// How well a group fits on a fabric.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// On how many domains of its level; zero if it asks for no level.
    pub(super) domains: usize,
    /// The places left for the scarcest kind of its pods.
    pub(super) rest: usize,
    /// What the scheduler will place.
    pub(super) spots: HashSet<Spot>,
}

/// Returns true if two sets of pods are in different domains of one level.
pub(super) fn are_apart(some: &HashSet<Spot>, others: &HashSet<Spot>) -> bool {
    let Some((_, Some(first))) = some.iter().next() else { return false };
    let is_of_level =
        |(_, domain): &Spot| domain.as_ref().is_some_and(|domain| domain.level == first.level);
    let is_there = |(_, domain): &Spot| some.iter().any(|(_, other)| other == domain);
    some.iter().chain(others).all(is_of_level) && !others.iter().any(is_there)
}
