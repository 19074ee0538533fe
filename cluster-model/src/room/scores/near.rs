//! Points for pods in the domains of a node that the pod prefers to be near or not, and whose affinity
//! prefers or requires it (`plugins/interpodaffinity/scoring.go`).

use super::MOST;
use crate::room::terms::Labels;
use crate::room::weighted_term::WeightedTerm;
use crate::room::{Ask, Room};
use std::collections::HashMap;

/// Points by the label of a node and its value.
#[derive(Default)]
struct Domains<'t>(HashMap<(&'t str, Box<str>), i64>);

impl Room<'_> {
    /// The points of nodes.
    pub(super) fn points_for_pods(
        &self,
        nodes: &[&str],
        ask: &Ask,
        own: &[WeightedTerm],
    ) -> Vec<i64> {
        let mut domains = Domains::default();
        for (node, key, terms) in self.nodes.drawing() {
            if self.nodes.pod(node, key).is_some_and(|pod| !self.is_away(key, pod, ask)) {
                let subject = (&*ask.namespace, &ask.labels);
                self.add(&mut domains, node, (&key.namespace, terms), subject);
            }
        }
        if !own.is_empty() {
            for (node, key, pod) in self.nodes.pods() {
                if !self.is_away(key, pod, ask) {
                    let subject = (&*key.namespace, &*pod.labels);
                    self.add(&mut domains, node, (&ask.namespace, own), subject);
                }
            }
        }
        compared(nodes.iter().map(|node| domains.points(|key| self.label(node, key))).collect())
    }

    /// Adds the points of terms that select a pod, for the domains of a node.
    fn add<'t>(
        &self,
        domains: &mut Domains<'t>,
        node: &str,
        (namespace, terms): (&str, &'t [WeightedTerm]),
        subject: (&str, &Labels),
    ) {
        for (term, weight) in terms {
            if let Some(value) = self.label(node, &term.topology_key)
                && term.matches(namespace, subject, self.view)
            {
                let domain = (&*term.topology_key, value.into());
                *domains.0.entry(domain).or_default() += weight;
            }
        }
    }
}

impl Domains<'_> {
    fn points<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> i64 {
        let own = self.0.iter().filter(|((key, value), _)| label(key) == Some(&**value));
        own.map(|(_, points)| points).sum()
    }
}

/// Points between the fewest and the most of all nodes; none if these are equal.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "kube-scheduler computes with the same conversions"
)]
fn compared(points: Vec<i64>) -> Vec<i64> {
    let most = points.iter().copied().max().unwrap_or_default();
    let least = points.iter().copied().min().unwrap_or_default();
    if most == least {
        return vec![0; points.len()];
    }
    let parts = points.into_iter().map(|it| (it - least) as f64 / (most - least) as f64);
    parts.map(|part| (MOST as f64 * part) as i64).collect()
}
