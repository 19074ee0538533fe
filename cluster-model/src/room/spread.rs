//! What topology spread constraints allow now (`plugins/podtopologyspread`).

use super::Room;
use super::ask::Ask;
use super::spread_constraint::Spread;
use super::why_not::WhyNot;
use std::collections::BTreeMap;

/// The domains of a constraint, and how many pods count in each.
pub(super) struct Spreading<'k> {
    spread: &'k Spread,
    /// Whether the pod itself counts.
    itself: bool,
    pods: BTreeMap<Box<str>, i64>,
}

impl Spreading<'_> {
    /// The node label whose values are the domains.
    pub(super) fn key(&self) -> &str {
        self.spread.key()
    }

    /// Whether a pod changes what is left for the next one like it.
    pub(super) fn counts_itself(&self) -> bool {
        self.itself
    }

    /// Why the constraint excludes a node now, given the node's value of the label.
    pub(super) fn why_not(&self, value: Option<&str>) -> Option<WhyNot> {
        let own = value.map(|value| self.pods_in(value) + i64::from(self.itself));
        let is_open = own.is_some_and(|own| own <= self.most(|_| 0));
        (!is_open).then(|| WhyNot::Spread { domains: self.key().into() })
    }

    fn pods_in(&self, value: &str) -> i64 {
        self.pods.get(value).copied().unwrap_or_default()
    }

    /// The most pods that a domain may have if each domain gets as many more as it has room for.
    fn most(&self, room: impl Fn(&str) -> i64) -> i64 {
        let fewest = self.pods.iter().map(|(value, pods)| pods.saturating_add(room(value))).min();
        let is_too_few = self.pods.len() < self.spread.min_domains;
        let fewest = if is_too_few { 0 } else { fewest.unwrap_or(i64::MAX) };
        fewest.saturating_add(self.spread.max_skew)
    }

    /// Limits the numbers of pods of the kind that has the constraint, each with the node's value of the
    /// label.
    pub(super) fn share(&self, places: &mut [(Option<&str>, &mut usize)]) {
        let mut room: BTreeMap<&str, i64> = BTreeMap::new();
        for (value, count) in places.iter() {
            let count = i64::try_from(**count).unwrap_or(i64::MAX);
            let sum = room.entry(value.unwrap_or_default()).or_default();
            *sum = sum.saturating_add(count);
        }
        let most = self.most(|value| room.get(value).copied().unwrap_or_default());
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        for (value, count) in places {
            let Some(value) = *value else {
                **count = 0;
                continue;
            };
            let open = most.saturating_sub(self.pods_in(value));
            let left = left.entry(value).or_insert_with(|| usize::try_from(open).unwrap_or(0));
            **count = (**count).min(*left);
            *left -= **count;
        }
    }
}

impl Room<'_> {
    /// The domains of the pod's spread constraints.
    pub(super) fn spreading<'k>(&self, ask: &'k Ask) -> Vec<Spreading<'k>> {
        let constraints = ask.spread.iter();
        constraints.map(|spread| self.spreading_by(spread, ask)).collect()
    }

    fn spreading_by<'k>(&self, spread: &'k Spread, ask: &'k Ask) -> Spreading<'k> {
        let counts = |namespace: &str, labels: &_| {
            spread.term.matches(&ask.namespace, (namespace, labels), self.view)
        };
        let mut on_nodes: BTreeMap<&str, i64> = BTreeMap::new();
        let bound = self.nodes.pods().filter(|(_, _, pod)| !self.is_idle && !pod.is_ending);
        let bound = bound.filter(|(_, key, pod)| {
            !self.is_away(key, pod, ask) && counts(&key.namespace, &pod.labels)
        });
        let added = self.added.iter();
        let added = added.filter(|added| counts(&added.ask.namespace, &added.ask.labels));
        for node in bound.map(|(node, _, _)| node).chain(added.map(|added| &*added.node)) {
            *on_nodes.entry(node).or_default() += 1;
        }
        let mut pods: BTreeMap<Box<str>, i64> = BTreeMap::new();
        for node in self.view.present_nodes() {
            if let Some(value) = self.domain_that_counts(node, spread, ask) {
                let own = on_nodes.get(node).copied().unwrap_or_default();
                *pods.entry(value.into()).or_default() += own;
            }
        }
        let itself = counts(&ask.namespace, &ask.labels);
        Spreading { spread, itself, pods }
    }

    /// The domain of a node whose pods count for a constraint: it has the labels of all constraints, and
    /// the policies include it.
    fn domain_that_counts(&self, node: &str, spread: &Spread, ask: &Ask) -> Option<&str> {
        self.nodes.facts(node)?;
        let has_all = ask.spread.iter().all(|it| self.label(node, it.key()).is_some());
        let value = self.label(node, spread.key());
        value.filter(|_| has_all && self.is_included(node, spread, ask))
    }

    /// Whether the policies of a constraint include a node (`matchNodeInclusionPolicies`).
    pub(super) fn is_included(&self, node: &str, spread: &Spread, ask: &Ask) -> bool {
        let is_allowed = !spread.honors_affinity || ask.placement.allows(self.view, node);
        let is_open = !spread.honors_taints
            || self.nodes.facts(node).is_none_or(|it| it.untolerated(&ask.tolerations).is_none());
        is_allowed && is_open
    }
}
