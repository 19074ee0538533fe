//! Recreates a missing template with exactly its former content, from a pod that refers
//! to it. The template's name is the hash of its content.

use crate::admit::admit;
use crate::plan::Policy;
use crate::template;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaimSpec, ResourceClaimTemplate};

/// The template of this name: by deciding on the original pod again, otherwise from
/// another namespace that has it. `None` if the cluster has changed, so that a new
/// decision gives another claim.
pub(super) fn recreate(
    pod: &Pod,
    name: &str,
    view: &ClusterView,
    policy: &Policy,
) -> Option<ResourceClaimTemplate> {
    decided_again(pod, view, policy)
        .filter(|template| template.metadata.name.as_deref() == Some(name))
        .or_else(|| from_elsewhere(name, view))
}

fn decided_again(pod: &Pod, view: &ClusterView, policy: &Policy) -> Option<ResourceClaimTemplate> {
    let pod = serde_json::to_value(pod).ok()?;
    Some(admit(&pod, view, policy).ok()?.planned?.template)
}

/// Templates with configuration are not copied, because the operator decides which
/// namespaces may have any.
fn from_elsewhere(name: &str, view: &ClusterView) -> Option<ResourceClaimTemplate> {
    let named = view.templates().filter(|(key, _)| key.name == name);
    let specs = named.filter_map(|(_, template)| template.spec.as_ref()?.spec.as_ref());
    let mut built = specs.filter(|spec| !has_config(spec)).map(template::build);
    built.find(|template| template.metadata.name.as_deref() == Some(name))
}

fn has_config(spec: &ResourceClaimSpec) -> bool {
    spec.devices
        .as_ref()
        .and_then(|devices| devices.config.as_ref())
        .is_some_and(|it| !it.is_empty())
}
