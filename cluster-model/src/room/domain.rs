//! Required affinity between pods (`plugins/interpodaffinity`): the pod's own terms, and the
//! anti-affinity of pods that run.

use super::ask::Ask;
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
        let domains = self.key.into();
        let why = if self.near { WhyNot::NotNear { domains } } else { WhyNot::Apart { domains } };
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
        let apart = ask.apart.iter().map(|term| self.domain(term, std::slice::from_ref(term), ask));
        // Only pods that all terms of affinity select count (`podMatchesAllAffinityTerms`).
        let near = ask.near.iter().map(|term| self.domain(term, &ask.near, ask));
        let near = near.map(|domain| Domain { near: true, ..domain });
        // In the order of `Filter` in `plugins/interpodaffinity`, since the first reason counts.
        near.chain(apart).collect()
    }

    /// The domains of a term, of pods that all these terms select.
    fn domain<'k>(&self, term: &'k Term, terms: &[Term], ask: &Ask) -> Domain<'k> {
        let is_meant = |namespace: &str, labels: &_| {
            terms.iter().all(|it| it.matches(&ask.namespace, (namespace, labels), self.view))
        };
        let bound = self.nodes.pods().filter(|(_, key, pod)| !self.is_away(key, pod, ask));
        let bound = bound.filter(|(_, key, pod)| is_meant(&key.namespace, &pod.labels));
        let added = self.added.iter();
        let added = added.filter(|added| is_meant(&added.ask.namespace, &added.ask.labels));
        let nodes: BTreeSet<&str> =
            bound.map(|(node, _, _)| node).chain(added.map(|added| &*added.node)).collect();
        let inventory = self.view.inventory();
        let there = nodes
            .into_iter()
            .filter_map(|node| inventory.node(node)?.labels.get(&*term.topology_key).cloned());
        let itself = is_meant(&ask.namespace, &ask.labels);
        Domain { key: &term.topology_key, near: false, itself, there: there.collect() }
    }

    /// The domains from which the anti-affinity of other pods keeps a pod.
    pub(super) fn kept_clear(&self, ask: &Ask) -> KeptClear {
        let bound = self.nodes.apart().filter(|(node, key, _)| {
            let pod = self.nodes.get(node).and_then(|info| info.pod(key));
            !self.is_idle && pod.is_some_and(|pod| !self.is_away(key, pod, ask))
        });
        let bound = bound.map(|(node, key, terms)| (node, &*key.namespace, terms));
        let added = self.added.iter();
        let added = added.map(|added| {
            let ask = &added.ask;
            (&*added.node, &*ask.namespace, &*ask.apart)
        });
        let mut domains = KeptClear::default();
        for (node, namespace, terms) in bound.chain(added) {
            for term in terms
                .iter()
                .filter(|it| it.matches(namespace, (&ask.namespace, &ask.labels), self.view))
            {
                if let Some(value) = self.label(node, &term.topology_key) {
                    let values = domains.0.entry(term.topology_key.as_str().into()).or_default();
                    values.insert(value.into());
                }
            }
        }
        domains
    }
}

/// The domains that other pods keep clear of a pod: values by node label.
#[derive(Debug, Default)]
pub(super) struct KeptClear(BTreeMap<Box<str>, BTreeSet<Box<str>>>);

impl KeptClear {
    /// Why the pod is kept off a node with these labels.
    pub(super) fn why_not<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> Option<WhyNot> {
        let mut closed = self.0.iter();
        let closed = closed.find(|(key, values)| label(key).is_some_and(|it| values.contains(it)));
        closed.map(|(key, _)| WhyNot::KeptClear { domains: key.clone() })
    }
}
