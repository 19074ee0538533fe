//! Applies the pods' own affinity to other pods.

use super::{FabricCapacity, Places};
use crate::requirements::PodRequirements;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The domains of a term, and which of them contain pods that it selects.
pub(super) struct Domain<'k> {
    pub(super) key: &'k str,
    near: bool,
    /// Whether the term selects pods of the same kind.
    itself: bool,
    there: BTreeSet<Arc<str>>,
}

impl Domain<'_> {
    /// Removes the nodes that the term excludes now.
    pub(super) fn close<'n>(
        &self,
        places: &mut Vec<Places>,
        label: impl Fn(usize) -> Option<&'n str>,
    ) {
        let free_choice = self.near && self.there.is_empty() && self.itself;
        places.retain(|it| match label(it.node) {
            // A node outside of every domain is never near the pods, and always apart
            // from them.
            None => !self.near,
            Some(value) => free_choice || self.there.contains(value) == self.near,
        });
    }

    /// Limits pods that their own term selects: one per domain if they must be apart;
    /// only the largest domain if they must be near each other.
    pub(super) fn share<'n>(
        &self,
        places: &mut Vec<Places>,
        label: impl Fn(usize) -> Option<&'n str>,
    ) {
        if !self.itself {
            return;
        }
        if !self.near {
            let mut seen = BTreeSet::new();
            for it in places.iter_mut().filter(|it| it.count > 0) {
                if let Some(value) = label(it.node) {
                    it.count = usize::from(seen.insert(value));
                }
            }
        } else if self.there.is_empty() {
            let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
            for it in places.iter() {
                *sums.entry(label(it.node).unwrap_or_default()).or_default() += it.count;
            }
            let largest = sums.into_iter().max_by_key(|(_, sum)| *sum).map(|(value, _)| value);
            places.retain(|it| label(it.node) == largest);
        }
    }
}

impl FabricCapacity<'_> {
    /// The domains of the kind's own terms.
    pub(super) fn domains<'k>(&self, kind: &'k Arc<PodRequirements>) -> Vec<Domain<'k>> {
        let apart = kind.apart.iter().map(|term| (term, false));
        let near = kind.near.iter().map(|term| (term, true));
        apart
            .chain(near)
            .map(|(term, near)| {
                let means =
                    |namespace: &str, labels: &_| term.matches(&kind.namespace, namespace, labels);
                let mut there = BTreeSet::new();
                for node in self.pods.nodes() {
                    let mut on = self.pods.on(node);
                    if on.any(|(key, placed)| means(&key.namespace, &placed.labels)) {
                        let known = self.view.inventory().node(node);
                        there.extend(
                            known.and_then(|it| it.labels.get(&*term.topology_key)).cloned(),
                        );
                    }
                }
                for (node, taken) in &self.taken {
                    if taken.labels.as_ref().is_some_and(|labels| means(&taken.namespace, labels)) {
                        there.extend(self.label(*node, &term.topology_key).map(Arc::from));
                    }
                }
                let itself = kind.labels.as_ref().is_some_and(|it| means(&kind.namespace, it));
                Domain { key: &term.topology_key, near, itself, there }
            })
            .collect()
    }
}
