//! Pods that wait for ever although a new pod like them would run: their claim does not know the
//! machines that have free devices.

use crate::answer::{DoctorFinding, Severity};
use crate::text::node_list;
use admission::admit::fits_anew;
use admission::plan::Policy;
use cluster_model::names::label;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;

/// The most pods that are examined; each is planned again.
pub(super) const PODS_MAX: usize = 20;

/// The pods whose claim, which admission wrote, has no devices yet.
pub(super) fn pods(view: &ClusterView) -> Vec<ObjectKey> {
    let open = view
        .claims()
        .filter(|(_, claim)| !claim.is_allocated && claim.labels.contains_key(label::TEMPLATE));
    let holders = open.filter_map(|(key, claim)| {
        let (name, _) = claim.pod.as_ref()?;
        Some(ObjectKey { namespace: key.namespace.clone(), name: name.clone() })
    });
    holders.take(PODS_MAX).collect()
}

pub(super) fn examine(view: &ClusterView, policy: &Policy, pods: &[Pod]) -> Vec<DoctorFinding> {
    let waiting =
        pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()));
    let found = waiting.take(PODS_MAX).filter_map(|pod| {
        let nodes = fits_anew(pod, view, policy)?;
        let mut names: Vec<_> = nodes.iter().map(String::as_str).collect();
        names.sort_unstable();
        let message = format!(
            "waits with a claim that was planned for other machines; delete the pod: a new one fits \
             on {}",
            node_list(&names)
        );
        let place = format!("pod {}", ObjectKey::new(&pod.metadata));
        Some(DoctorFinding::new(Severity::Warning, place, message))
    });
    found.collect()
}
