//! Applies the pod's own affinity to other pods.

use super::ask::Ask;
use super::places::Places;
use super::why_not::WhyNot;
use super::{Room, Term};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The domains of a term, and which of them contain pods that it selects.
pub(super) struct Domain<'k> {
    key: &'k str,
    near: bool,
    /// Whether the term selects pods of the same kind.
    itself: bool,
    there: BTreeSet<Arc<str>>,
}

impl Domain<'_> {
    /// Returns why the term excludes a node now, given the node's value of the label.
    pub(super) fn why_not(&self, value: Option<&str>) -> Option<WhyNot> {
        let is_free_choice = self.near && self.there.is_empty() && self.itself;
        let is_open = match value {
            // A node outside of every domain is never near the pods, and always apart from them.
            None => !self.near,
            Some(value) => is_free_choice || self.there.contains(value) == self.near,
        };
        let domains = || self.key.into();
        let why = if self.near {
            WhyNot::NotNear { domains: domains() }
        } else {
            WhyNot::Apart { domains: domains() }
        };
        (!is_open).then_some(why)
    }

    /// Limits pods that their own term selects: one per domain if they must be apart; only the
    /// largest domain if they must be near each other.
    pub(super) fn share(&self, room: &Room<'_>, places: &mut Vec<Places<'_>>) {
        if !self.itself {
            return;
        }
        let value = |places: &Places<'_>| room.label(places.node, self.key);
        if !self.near {
            let mut seen = BTreeSet::new();
            for it in places.iter_mut().filter(|it| it.count > 0) {
                if let Some(value) = value(it) {
                    it.count = usize::from(seen.insert(value));
                }
            }
        } else if self.there.is_empty() {
            let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
            for it in places.iter() {
                *sums.entry(value(it).unwrap_or_default()).or_default() += it.count;
            }
            let largest = sums.into_iter().max_by_key(|(_, sum)| *sum).map(|(value, _)| value);
            places.retain(|it| value(it) == largest);
        }
    }

    /// The node label whose values are the domains.
    pub(super) fn key(&self) -> &str {
        self.key
    }
}

impl Room<'_> {
    /// The domains of the pod's own terms.
    pub(super) fn domains<'k>(&self, ask: &'k Ask) -> Vec<Domain<'k>> {
        let apart = ask.apart.iter().map(|term| self.domain(term, false, ask));
        let near = ask.near.iter().map(|term| self.domain(term, true, ask));
        apart.chain(near).collect()
    }

    fn domain<'k>(&self, term: &'k Term, near: bool, ask: &Ask) -> Domain<'k> {
        let is_meant =
            |namespace: &str, labels: &_| term.matches(&ask.namespace, namespace, labels);
        let bound = self.nodes.pods().filter(|(_, key, _)| !self.has_left(key));
        let bound = bound.filter(|(_, key, pod)| is_meant(&key.namespace, &pod.labels));
        let added = self.added.iter().filter(|(_, other)| {
            other.labels.as_ref().is_some_and(|labels| is_meant(&other.namespace, labels))
        });
        let nodes: BTreeSet<&str> =
            bound.map(|(node, _, _)| node).chain(added.map(|(node, _)| &**node)).collect();
        let inventory = self.view.inventory();
        let there = nodes
            .into_iter()
            .filter_map(|node| inventory.node(node)?.labels.get(&*term.topology_key).cloned());
        let itself = ask.labels.as_ref().is_some_and(|own| is_meant(&ask.namespace, own));
        Domain { key: &term.topology_key, near, itself, there: there.collect() }
    }
}
