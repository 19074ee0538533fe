//! A quota on an extended resource of GPUs counts container limits, and the
//! claim that replaces them escapes it; except where the claim's class stands
//! for that resource, since the API server then counts the claim too.

use crate::intent::Intent;
use crate::plan::Plan;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::DeviceRequest;

/// One warning for each resource with a quota that the claim escapes.
pub(crate) fn warnings(
    intent: &Intent,
    plan: &Plan,
    namespace: &str,
    view: &ClusterView,
) -> Vec<String> {
    let Some((_, resource)) = intent.resource else { return Vec::new() };
    let devices = plan.claim.devices.as_ref();
    let requests = devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
    let gpus = requests.iter().filter(|request| !plan.nic_requests.contains(&request.name));
    let Some(class) = gpus.flat_map(classes).next() else { return Vec::new() };
    if view.extended_resource(class) == Some(resource) {
        return Vec::new();
    }
    let limited = format!("requests.{resource}");
    let quotas = view.quotas().on(namespace, &limited);
    let quotas: Vec<_> = quotas.map(|name| format!("`{name}`")).collect();
    if quotas.is_empty() {
        return Vec::new();
    }
    let verb = if quotas.len() == 1 { "limits" } else { "limit" };
    vec![format!(
        "quota {} {verb} {limited}, which does not count the claim that replaces the limits of \
         this pod; limit {class}.deviceclass.resource.k8s.io/devices, or set \
         extendedResourceName: {resource} in DeviceClass `{class}`",
        quotas.join(", ")
    )]
}

fn classes(request: &DeviceRequest) -> impl Iterator<Item = &str> {
    let exactly = request.exactly.iter().map(|ask| ask.device_class_name.as_str());
    let tiers = request.first_available.iter().flatten();
    exactly.chain(tiers.map(|ask| ask.device_class_name.as_str()))
}
