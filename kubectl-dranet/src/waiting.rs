//! Pods that wait for a node and want devices.

use cluster_model::names::annotation;
use cluster_model::view::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use std::collections::BTreeMap;

/// Pods of one owner that wait for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Waiting {
    /// `Job train`, `Pod train-0`.
    pub(crate) owner: String,
    pub(crate) namespace: String,
    /// Their names.
    pub(crate) pods: Vec<String>,
}

/// The pods that wait for a node and want devices, by their owner.
pub(crate) fn waiting<'p>(pods: impl Iterator<Item = &'p Pod>) -> Vec<Waiting> {
    let mut all: BTreeMap<(String, String), Waiting> = BTreeMap::new();
    for pod in pods.filter(|pod| is_waiting(pod)) {
        let ObjectKey { namespace, name } = ObjectKey::new(&pod.metadata);
        let owner = pod.metadata.owner_references.iter().flatten().next();
        let owner = owner.map_or_else(
            || format!("Pod {name}"),
            |owner| format!("{} {}", owner.kind, owner.name),
        );
        let entry = all.entry((namespace.clone(), owner.clone()));
        let group = entry.or_insert_with(|| Waiting { owner, namespace, pods: Vec::new() });
        group.pods.push(name);
    }
    all.into_values().collect()
}

/// Returns true if a pod waits for a node and wants devices.
pub(crate) fn is_waiting(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(phase, Some("Succeeded" | "Failed"));
    let Some(spec) = pod.spec.as_ref().filter(|spec| spec.node_name.is_none() && !is_over) else {
        return false;
    };
    let mut annotations = pod.metadata.annotations.iter().flatten();
    let is_annotated = annotations.any(|(key, _)| key == annotation::ALIGNED_NICS);
    let has_claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
    pod.metadata.deletion_timestamp.is_none() && (is_annotated || has_claims)
}
