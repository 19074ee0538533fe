//! Applies the pod's own affinity to other pods.

use super::ask::Ask;
use super::why_not::WhyNot;
use super::{Room, Term};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The domains of a term, and which of them contain pods that it selects.
pub(super) struct Domain<'k> {
    key: &'k str,
    near: bool,
    /// Whether the term selects pods of the same kind.
    itself: bool,
    there: BTreeSet<Arc<str>>,
}

/// How a term limits pods of the kind that has it.
pub(super) enum Share {
    /// One in each domain.
    OneEach,
    /// All in one domain.
    OneDomain,
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

    /// How pods that their own term selects limit each other; `None` if they do not.
    pub(super) fn share(&self) -> Option<Share> {
        match (self.itself, self.near) {
            (true, false) => Some(Share::OneEach),
            (true, true) if self.there.is_empty() => Some(Share::OneDomain),
            _ => None,
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
