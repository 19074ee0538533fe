//! A quota on an extended resource of GPUs counts container limits, and the
//! claim that replaces them escapes it; except where the claim's class stands
//! for that resource, since the API server then counts the claim too.

use crate::claim::class_names;
use crate::intent::{GpuResource, Intent};
use crate::plan::Plan;
use cluster_model::view::{ClusterView, ObjectKey};
use std::collections::BTreeSet;

/// Why the claim escapes the quotas of its namespace: some limit the resource that it
/// replaces, and none counts the claim.
pub(crate) fn escape(
    intent: &Intent,
    plan: &Plan,
    namespace: &str,
    view: &ClusterView,
) -> Option<String> {
    let GpuResource { name: resource, class: of, .. } = intent.resource.as_ref()?;
    let devices = plan.claim.devices.as_ref();
    let requests = devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
    let gpus = requests.iter().filter(|request| !plan.nic_requests.contains(&request.name));
    let class = gpus.flat_map(class_names).next()?;
    let counts = of.as_deref() == Some(class)
        || view.quotas().of(namespace, &counted(class)).next().is_some();
    if counts {
        return None;
    }
    let quotas = escaped(view, resource, class);
    let quotas = quotas.iter().filter(|key| key.namespace == namespace);
    let quotas: Vec<_> = quotas.map(|key| format!("`{}`", key.name)).collect();
    if quotas.is_empty() {
        return None;
    }
    let verb = if quotas.len() == 1 { "limits" } else { "limit" };
    Some(format!(
        "quota {} {verb} {}, which does not count the claim that replaces the limits of this \
         pod; {}",
        quotas.join(", "),
        limited(resource),
        instead(resource, class)
    ))
}

/// The quotas on an extended resource, of any namespace, that claims by a class escape.
pub fn escaped(view: &ClusterView, resource: &str, class: &str) -> BTreeSet<ObjectKey> {
    if view.extended_resource(class) == Some(resource) {
        return BTreeSet::new();
    }
    view.quotas().limiting(&limited(resource), &counted(class)).cloned().collect()
}

/// What counts them.
pub fn instead(resource: &str, class: &str) -> String {
    let counted = counted(class);
    format!("limit {counted}, or set extendedResourceName: {resource} in DeviceClass `{class}`")
}

/// An extended resource, as a quota names it.
pub fn limited(resource: &str) -> String {
    format!("requests.{resource}")
}

/// The devices of a class, as a quota names them.
fn counted(class: &str) -> String {
    format!("{class}.deviceclass.resource.k8s.io/devices")
}
