//! Claims that the pod brings itself.

use crate::denial::Denial;
use crate::intent::Intent;
use cluster_model::gpu_drivers::{self, GPU_DRIVERS};
use cluster_model::machines::is_in;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::Class;
use k8s_openapi::api::core::v1::{self as core, Pod};
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaimSpec};

/// Refuses a pod that claims GPUs already: it would get a second set.
pub(crate) fn check(pod: &Pod, intent: &Intent, view: &ClusterView) -> Result<(), Denial> {
    let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref());
    for entry in claims.unwrap_or_default() {
        let Some(spec) = spec(pod, entry, view) else { continue };
        if let Some(request) = gpu_request(spec, view) {
            return Err(intent.deny(format!(
                "claim `{}` of the pod asks for GPUs already (request `{request}`), and this \
                 annotation would add others; remove the claim and set a limit, or remove the \
                 annotation",
                entry.name
            )));
        }
    }
    Ok(())
}

/// What an entry of `spec.resourceClaims` asks for, where it is known.
fn spec<'a>(
    pod: &Pod,
    entry: &core::PodResourceClaim,
    view: &'a ClusterView,
) -> Option<&'a ResourceClaimSpec> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let key = |name: &String| ObjectKey { namespace: namespace.clone(), name: name.clone() };
    if let Some(name) = &entry.resource_claim_name {
        return view.claim(&key(name))?.spec.as_deref();
    }
    view.template(&key(entry.resource_claim_template_name.as_ref()?))?.spec.as_ref()
}

/// Name of the first request whose class is one of GPUs.
fn gpu_request<'a>(spec: &'a ResourceClaimSpec, view: &ClusterView) -> Option<&'a str> {
    let requests = spec.devices.as_ref().and_then(|devices| devices.requests.as_deref());
    let mut requests = requests.unwrap_or_default().iter();
    let is_gpu = |request: &&DeviceRequest| classes(request).any(|name| is_gpu_class(name, view));
    requests.find(is_gpu).map(|request| request.name.as_str())
}

fn classes(request: &DeviceRequest) -> impl Iterator<Item = &str> {
    let exactly = request.exactly.iter().map(|ask| ask.device_class_name.as_str());
    let tiers = request.first_available.iter().flatten();
    exactly.chain(tiers.map(|ask| ask.device_class_name.as_str()))
}

fn is_gpu_class(name: &str, view: &ClusterView) -> bool {
    let selects_gpu = |class: &Class| {
        let slices = view.inventory().slices();
        let mut slices = slices.filter(|slice| gpu_drivers::by_name(&slice.pool.driver).is_some());
        slices.any(|slice| slice.devices.iter().any(|gpu| is_in(class, gpu, view.settings())))
    };
    GPU_DRIVERS.iter().any(|driver| driver.driver == name)
        || view.inventory().class(name).is_some_and(|class| selects_gpu(class))
}
