//! Points for domains with fewer pods of a spread constraint that need not hold
//! (`plugins/podtopologyspread/scoring.go`).

use super::MOST;
use crate::room::spread_constraint::Spread;
use crate::room::{Ask, Room};
use crate::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// The label of nodes whose pods are counted node by node.
const HOST: &str = "kubernetes.io/hostname";
/// The constraints of pods without their own that a Service or a controller selects: label, skew
/// (`systemDefaultConstraints`).
const OF_SELECTED: [(&str, i64); 2] = [(HOST, 3), ("topology.kubernetes.io/zone", 5)];
/// Controllers whose selectors count, and are not read.
const CONTROLLERS: [&str; 3] = ["ReplicationController", "ReplicaSet", "StatefulSet"];

/// The constraints of a pod that need not hold.
#[derive(Debug)]
pub(super) enum Soft {
    /// Its own.
    Own(Vec<Spread>),
    /// Those of pods that a Service selects, if one does.
    OfServices,
    /// Those of a controller whose selector is not known.
    Unknown,
}

impl Soft {
    /// Reads a pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let own =
            pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
        let mut owners = pod.metadata.owner_references.iter().flatten();
        match own.count() {
            0 if owners.any(|it| CONTROLLERS.contains(&&*it.kind)) => Self::Unknown,
            0 => Self::OfServices,
            _ => Self::Own(Spread::preferred(pod)),
        }
    }
}

/// The constraints of pods that Services select; `None` if it is not known which do.
fn of_services(ask: &Ask, view: &ClusterView) -> Option<Vec<Spread>> {
    if ask.labels.is_empty() {
        return Some(Vec::new());
    }
    let selected = view.services_of(&ask.namespace, |key| ask.labels.get(key))?;
    if selected.is_empty() {
        return Some(Vec::new());
    }
    Some(OF_SELECTED.map(|(key, skew)| Spread::of_labels(key, skew, &selected)).into())
}

/// A constraint on some nodes.
struct Counted<'c> {
    spread: &'c Spread,
    /// The pods of each domain; those of hosts are counted node by node.
    pods: BTreeMap<&'c str, i64>,
    /// `topologyNormalizingWeight`.
    weight: f64,
}

impl Room<'_> {
    /// The points of nodes; `None` if the constraints are not known.
    pub(super) fn points_for_spread(
        &self,
        nodes: &[&str],
        ask: &Ask,
        soft: &Soft,
    ) -> Option<Vec<i64>> {
        let of_services;
        let (constraints, need_all) = match soft {
            Soft::Own(own) => (own, true),
            Soft::OfServices => {
                of_services = self::of_services(ask, self.view)?;
                (&of_services, false)
            }
            Soft::Unknown => return None,
        };
        if constraints.is_empty() {
            return Some(vec![0; nodes.len()]);
        }
        let has_all = |node: &str| {
            !need_all || constraints.iter().all(|it| self.label(node, it.key()).is_some())
        };
        let on_nodes: Vec<_> = constraints.iter().map(|spread| self.pods_of(spread, ask)).collect();
        let counted: Vec<Counted<'_>> = constraints
            .iter()
            .zip(&on_nodes)
            .map(|(spread, pods)| self.counted((spread, pods), nodes, ask, &has_all))
            .collect();
        let scores = nodes.iter().map(|node| {
            has_all(node).then(|| {
                let parts = counted.iter().zip(&on_nodes);
                let parts = parts.map(|(it, pods)| self.part(it, node, pods));
                parts.sum::<f64>()
            })
        });
        Some(inverted(scores.collect()))
    }

    /// How many pods on each node a constraint counts.
    fn pods_of(&self, spread: &Spread, ask: &Ask) -> BTreeMap<&str, i64> {
        let mut all: BTreeMap<&str, i64> = BTreeMap::new();
        for (node, key, pod) in self.nodes.pods() {
            let subject = (&*key.namespace, &*pod.labels);
            if !pod.is_ending
                && !self.is_away(key, pod, ask)
                && spread.term.matches(&ask.namespace, subject, self.view)
            {
                *all.entry(node).or_default() += 1;
            }
        }
        all
    }

    fn counted<'c>(
        &'c self,
        (spread, on_nodes): (&'c Spread, &BTreeMap<&str, i64>),
        nodes: &[&str],
        ask: &Ask,
        has_all: &dyn Fn(&str) -> bool,
    ) -> Counted<'c> {
        let candidates: Vec<&str> = nodes.iter().copied().filter(|node| has_all(node)).collect();
        let domain = |node: &str| self.label(node, spread.key()).unwrap_or_default();
        let of_candidates: BTreeSet<&str> = candidates.iter().map(|node| domain(node)).collect();
        let size = if spread.key() == HOST { candidates.len() } else { of_candidates.len() };
        let mut pods: BTreeMap<&str, i64> = of_candidates.into_iter().map(|it| (it, 0)).collect();
        for (node, count) in on_nodes {
            if has_all(node)
                && self.is_included(node, spread, ask)
                && let Some(sum) = pods.get_mut(domain(node))
            {
                *sum += count;
            }
        }
        Counted { spread, pods, weight: weight(size) }
    }

    /// The part of a constraint in the score of a node (`scoreForCount`).
    #[expect(clippy::cast_precision_loss, reason = "kube-scheduler computes with floats")]
    fn part(&self, counted: &Counted<'_>, node: &str, on_nodes: &BTreeMap<&str, i64>) -> f64 {
        let Counted { spread, pods, weight } = counted;
        let Some(domain) = self.label(node, spread.key()) else { return 0.0 };
        let count = if spread.key() == HOST { on_nodes.get(node) } else { pods.get(domain) };
        count.copied().unwrap_or_default() as f64 * weight + (spread.max_skew - 1) as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "kube-scheduler computes with floats")]
fn weight(size: usize) -> f64 {
    ((size + 2) as f64).ln()
}

/// The points: more for lower scores, and none without one (`NormalizeScore`).
#[expect(clippy::cast_possible_truncation, reason = "kube-scheduler rounds in the same way")]
fn inverted(scores: Vec<Option<f64>>) -> Vec<i64> {
    let scores: Vec<Option<i64>> =
        scores.into_iter().map(|score| score.map(|score| score.round() as i64)).collect();
    let most = scores.iter().copied().flatten().max().unwrap_or_default();
    let least = scores.iter().copied().flatten().min().unwrap_or_default();
    let points = scores.into_iter().map(|score| match score {
        None => 0,
        Some(_) if most == 0 => MOST,
        Some(score) => MOST * (most + least - score) / most,
    });
    points.collect()
}
