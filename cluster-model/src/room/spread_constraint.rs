//! Topology spread constraints of pods that must hold (`plugins/podtopologyspread`).

use super::terms::Term;
use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};
use std::collections::BTreeMap;

/// The policy with which nodes count although the pod cannot run there.
const IGNORE: &str = "Ignore";

/// A constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spread {
    /// The node label whose values are the domains, and the pods that count.
    pub(super) term: Term,
    /// How many more pods a domain may have than the one with the fewest.
    pub(super) max_skew: i64,
    /// With fewer domains than this, the fewest is 0.
    pub(super) min_domains: usize,
    /// Whether only nodes count that the pod's node selector and affinity allow.
    pub(super) honors_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub(super) honors_taints: bool,
}

impl Spread {
    /// The constraints of a pod that must hold.
    pub(super) fn of(pod: &Pod) -> Vec<Self> {
        Self::that(pod, "DoNotSchedule")
    }

    /// The constraints of a pod that only make a node less preferred.
    pub(super) fn preferred(pod: &Pod) -> Vec<Self> {
        Self::that(pod, "ScheduleAnyway")
    }

    fn that(pod: &Pod, when_unsatisfiable: &str) -> Vec<Self> {
        let all =
            pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
        let those = all.filter(|it| it.when_unsatisfiable == when_unsatisfiable);
        those.map(|wire| Self::new(wire, pod)).collect()
    }

    /// A constraint on pods with these labels.
    pub(super) fn of_labels(
        topology_key: &str,
        max_skew: i64,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        Self {
            term: Term::of_labels(topology_key, labels),
            max_skew,
            min_domains: 1,
            honors_affinity: true,
            honors_taints: false,
        }
    }

    /// The node label whose values are the domains.
    pub(super) fn key(&self) -> &str {
        &self.term.topology_key
    }

    fn new(wire: &TopologySpreadConstraint, pod: &Pod) -> Self {
        let min_domains = wire.min_domains.and_then(|number| usize::try_from(number).ok());
        Self {
            term: Term::of_spread(wire, pod.metadata.labels.as_ref()),
            max_skew: wire.max_skew.into(),
            min_domains: min_domains.unwrap_or(1),
            honors_affinity: wire.node_affinity_policy.as_deref() != Some(IGNORE),
            // The default is Ignore.
            honors_taints: wire.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}
