//! Terms of affinity that need not hold: each gives points to nodes
//! (`plugins/interpodaffinity/scoring.go`).

use super::terms::Term;
use k8s_openapi::api::core::v1::{Pod, WeightedPodAffinityTerm};

/// The weight of a required term of a pod that runs (`hardPodAffinityWeight`).
const REQUIRED: i64 = 1;

/// A term, and the points that it gives; fewer than none if pods prefer to be apart.
pub(super) type WeightedTerm = (Term, i64);

/// The preferred terms of a pod.
pub(super) fn preferred(pod: &Pod) -> Vec<WeightedTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let near = affinity.and_then(|it| it.pod_affinity.as_ref());
    let near = near.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let apart = affinity.and_then(|it| it.pod_anti_affinity.as_ref());
    let apart =
        apart.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let near = near.into_iter().flatten().map(|term| weighted(term, 1, pod));
    near.chain(apart.into_iter().flatten().map(|term| weighted(term, -1, pod))).collect()
}

fn weighted(wire: &WeightedPodAffinityTerm, sign: i64, pod: &Pod) -> WeightedTerm {
    (Term::new(&wire.pod_affinity_term, pod), sign * i64::from(wire.weight))
}

/// The terms with which a pod that runs draws others near or keeps them apart.
pub(super) fn drawing(pod: &Pod) -> Vec<WeightedTerm> {
    let (_, near) = Term::of(pod);
    let required = near.into_iter().map(|term| (term, REQUIRED));
    required.chain(preferred(pod)).collect()
}
