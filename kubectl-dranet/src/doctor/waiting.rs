//! Pods that wait for ever although a new pod like them would run: their claim does not know the
//! machines that have free devices.

use super::finding::Findings;
use super::scene::Scene;
use crate::kinds::{PODS, Query};
use crate::text::node_list;
use admission::admit::fits_anew;
use cluster_model::names::label;
use cluster_model::view::{ClusterView, ObjectKey};

/// The most pods that are examined; each is planned again.
const PODS_MAX: usize = 20;

/// The pods to read: those whose claim, which admission wrote, has no devices yet.
pub(super) fn queries(view: &ClusterView) -> Vec<Query> {
    let without = "it is not checked whether waiting pods are outdated";
    let open = view
        .claims()
        .filter(|(_, claim)| !claim.is_allocated && claim.labels.contains_key(label::TEMPLATE));
    let holders = open.filter_map(|(key, claim)| {
        let (name, _) = claim.pod.as_ref()?;
        Some(PODS.one(&key.namespace, name, without))
    });
    holders.take(PODS_MAX).collect()
}

pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    let pods = scene.waiting.iter();
    let waiting = pods.filter(|it| it.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()));
    for pod in waiting.take(PODS_MAX) {
        let Some(nodes) = fits_anew(pod, scene.view, scene.policy) else { continue };
        let mut names: Vec<_> = nodes.iter().map(String::as_str).collect();
        names.sort_unstable();
        let message = format!(
            "waits with a claim that was planned for other machines; delete the pod: a new one fits \
             on {}",
            node_list(&names)
        );
        found.warning(format!("pod {}", ObjectKey::new(&pod.metadata)), message);
    }
}
