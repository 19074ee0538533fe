//! The scores by which kube-scheduler 1.37 prefers one of the nodes on which a pod fits: those of its own
//! plugins, with their default weights (`apis/config/v1/default_plugins.go`). Extenders add theirs.

mod amounts;
mod images;
mod lists;
mod near;
mod spread;
mod storage;

pub use images::Images;

use super::weighted_term::{WeightedTerm, preferred};
use super::{Ask, Room};
use crate::placement;
use dra_allocator::NodeSelector;
use dra_allocator::node::Node;
use k8s_openapi::api::core::v1::{self as core, Pod};
use spread::Soft;

/// The most points of a plugin (`MaxNodeScore`).
const MOST: i64 = 100;
/// The weights of plugins.
const TAINTS: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const SPREAD: i64 = 2;
const POD_AFFINITY: i64 = 2;
const DEVICES: i64 = 2;

/// What makes a pod prefer nodes.
#[derive(Debug)]
pub struct Preferences {
    affinity: Vec<(NodeSelector, i64)>,
    terms: Vec<WeightedTerm>,
    spread: Soft,
    images: Vec<String>,
}

/// The points of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scores {
    /// The points of each node, in the order in which they were asked for.
    pub points: Vec<i64>,
    /// By how much two nodes may differ because of what is not known.
    pub unknown: i64,
}

impl Preferences {
    /// Reads a pod.
    pub fn new(pod: &Pod) -> Self {
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let of_nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let of_nodes = of_nodes
            .and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
        let of_nodes = of_nodes.into_iter().flatten();
        Self {
            affinity: of_nodes.filter_map(preferred_nodes).collect(),
            terms: preferred(pod),
            spread: Soft::of(pod),
            images: images::of(pod),
        }
    }
}

/// A preferred term; `None` if it is empty, and so selects nothing.
fn preferred_nodes(term: &core::PreferredSchedulingTerm) -> Option<(NodeSelector, i64)> {
    let preference = &term.preference;
    let parts = [&preference.match_expressions, &preference.match_fields];
    let is_empty = parts.iter().all(|part| part.iter().flatten().next().is_none());
    let selector = core::NodeSelector { node_selector_terms: vec![preference.clone()] };
    (!is_empty).then(|| (placement::selector(&selector), term.weight.into()))
}

impl Room<'_> {
    /// The points of nodes on which a pod fits.
    ///
    /// # Errors
    /// Returns a reason if a claim of the pod is unknown.
    pub fn scores(
        &self,
        (ask, preferences): (&Ask, &Preferences),
        nodes: &[&str],
        images: &Images,
    ) -> Result<Scores, String> {
        let mut sums = Scores { points: vec![0; nodes.len()], unknown: 0 };
        let amounts: Vec<_> = nodes.iter().map(|node| self.points_for_amounts(node, ask)).collect();
        sums.add(1, amounts.iter().map(|it| it.map(|[free, _]| free)));
        sums.add(1, amounts.iter().map(|it| it.map(|[_, even]| even)));
        let taints = nodes.iter().map(|node| {
            self.nodes.facts(node).map_or(0, |facts| facts.soft_taints(&ask.tolerations))
        });
        let taints = taints.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        sums.add(TAINTS, normalized(taints.collect(), true).into_iter().map(Some));
        if !preferences.affinity.is_empty() {
            let points = nodes.iter().map(|node| self.points_for_labels(node, preferences));
            sums.add(NODE_AFFINITY, normalized(points.collect(), false).into_iter().map(Some));
        }
        let near = self.points_for_pods(nodes, ask, &preferences.terms);
        sums.add(POD_AFFINITY, near.into_iter().map(Some));
        sums.add_all(SPREAD, self.points_for_spread(nodes, ask, &preferences.spread));
        sums.add(1, nodes.iter().map(|node| images.points(node, &preferences.images)));
        let lists = self.points_for_lists(nodes, ask)?;
        sums.add(DEVICES, normalized(lists, false).into_iter().map(Some));
        sums.add(1, self.points_for_storage(nodes, ask).into_iter().map(Some));
        Ok(sums)
    }

    fn points_for_labels(&self, node: &str, preferences: &Preferences) -> i64 {
        let Some(node) = self.view.inventory().node(node) else { return 0 };
        let matching = preferences.affinity.iter().filter(|(selector, _)| is_in(selector, node));
        matching.map(|(_, weight)| weight).sum()
    }
}

fn is_in(selector: &NodeSelector, node: &Node) -> bool {
    selector.matches(node).unwrap_or(false)
}

impl Scores {
    /// Adds the points of a plugin. Where one is not known, all may differ by what the plugin can give.
    fn add(&mut self, weight: i64, points: impl Iterator<Item = Option<i64>>) {
        let mut is_known = true;
        for (sum, points) in self.points.iter_mut().zip(points) {
            is_known &= points.is_some();
            *sum += weight * points.unwrap_or_default();
        }
        if !is_known {
            self.unknown += weight * MOST;
        }
    }

    /// The same for a plugin of which all or nothing is known.
    fn add_all(&mut self, weight: i64, points: Option<Vec<i64>>) {
        match points {
            Some(points) => self.add(weight, points.into_iter().map(Some)),
            None => self.unknown += weight * MOST,
        }
    }
}

/// Points in relation to the most of all nodes, or to none at all if fewer are better
/// (`DefaultNormalizeScore` in `plugins/helper`).
fn normalized(mut points: Vec<i64>, is_reversed: bool) -> Vec<i64> {
    let most = points.iter().copied().max().unwrap_or_default();
    for it in &mut points {
        let part = if most == 0 { 0 } else { MOST * *it / most };
        *it = if is_reversed { MOST - part } else { part };
    }
    points
}
