//! Checks a pod for fields that would defeat its claim: claims of its own, a node name,
//! limits for NICs of device plugins, another scheduler.

use crate::claim::class_names;
use crate::denial::Denial;
use crate::intent::Intent;
use cluster_model::gpu_drivers;
use cluster_model::machines::is_in;
use cluster_model::nic_plugins::{can_be_nics, is_nics};
use cluster_model::pod_containers::main_first;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::Class;
use k8s_openapi::api::core::v1::{self as core, Pod};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;

/// The scheduler of pods that do not name one.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Denies a pod whose devices would not be decided by its claim alone.
pub(crate) fn check(pod: &Pod, intent: &Intent, view: &ClusterView) -> Result<(), Denial> {
    check_node(pod, intent)?;
    check_nic_plugins(pod, intent)?;
    check_claims(pod, intent, view)
}

/// Denies a pod with a node name: it is never scheduled, so no devices would be
/// allocated.
fn check_node(pod: &Pod, intent: &Intent) -> Result<(), Denial> {
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        None | Some("") => Ok(()),
        Some(node) => Err(intent.deny(format!(
            "spec.nodeName is \"{node}\", which bypasses the scheduler that allocates the \
             devices; remove it and set spec.nodeSelector kubernetes.io/hostname: {node}"
        ))),
    }
}

/// Denies NICs from a device plugin: device plugin and claim could hand out the same NIC
/// without knowing of each other.
fn check_nic_plugins(pod: &Pod, intent: &Intent) -> Result<(), Denial> {
    match limits(pod).into_iter().find(|(_, resource)| is_nics(resource)) {
        None => Ok(()),
        Some((container, resource)) => Err(intent.deny(format!(
            "container `{container}` has a limit {resource}, by which a device plugin gives it NICs, \
             and the claim of this annotation gives it NICs as well; remove the limit"
        ))),
    }
}

/// Warns about limits that have a name of NICs: whether they are the same NICs is for the plugin's
/// configuration to say.
pub(crate) fn other_nics(pod: &Pod) -> Option<String> {
    let (container, resource) = limits(pod).into_iter().find(|(_, it)| can_be_nics(it))?;
    Some(format!(
        "container `{container}` has a limit {resource}, which looks like NICs of a device plugin: if \
         these are NICs that claims can get too, two pods can get one; remove the limit, or exclude \
         these NICs from node-driver (--filter) or from the plugin"
    ))
}

/// The extended resources and others that containers have limits of, each with its container.
fn limits(pod: &Pod) -> Vec<(&str, &str)> {
    let all = pod.spec.iter().flat_map(main_first).flat_map(|container| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        let asked = limits.into_iter().flatten().filter(|(_, amount)| amount.0 != "0");
        asked.map(|(resource, _)| (container.name.as_str(), resource.as_str()))
    });
    all.collect()
}

/// The pod's scheduler, if it is another one. It may not allocate claims, and does not
/// call the extender.
pub(crate) fn other_scheduler(pod: &Pod, ours: Option<&str>) -> Option<String> {
    let named = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref())?;
    let is_known = named.is_empty() || named == DEFAULT_SCHEDULER || Some(named) == ours;
    (!is_known).then(|| {
        format!(
            "spec.schedulerName is \"{named}\": the pod starts only if that scheduler allocates \
             resource claims (its plugin DynamicResources)"
        )
    })
}

/// Denies a pod that already claims GPUs, because it would get a second set.
fn check_claims(pod: &Pod, intent: &Intent, view: &ClusterView) -> Result<(), Denial> {
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

/// The spec of an entry of `spec.resourceClaims`, if known.
pub(crate) fn spec<'a>(
    pod: &Pod,
    entry: &core::PodResourceClaim,
    view: &'a ClusterView,
) -> Option<&'a ResourceClaimSpec> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    if let Some(name) = entry.resource_claim_name.clone() {
        return view.claim(&ObjectKey { namespace, name })?.spec.as_deref();
    }
    let name = entry.resource_claim_template_name.clone()?;
    view.template(&ObjectKey { namespace, name })?.spec.as_ref()
}

/// Name of the first request with a class of GPUs.
fn gpu_request<'a>(spec: &'a ResourceClaimSpec, view: &ClusterView) -> Option<&'a str> {
    let requests = spec.devices.as_ref().and_then(|devices| devices.requests.as_deref());
    let mut requests = requests.unwrap_or_default().iter();
    requests
        .find(|request| class_names(request).any(|name| is_gpu_class(name, view)))
        .map(|request| request.name.as_str())
}

fn is_gpu_class(name: &str, view: &ClusterView) -> bool {
    gpu_drivers::all().iter().any(|driver| driver.driver == name)
        || view.inventory().class(name).is_some_and(|class| selects_gpu(class, view))
}

/// Whether the class selects a published GPU.
fn selects_gpu(class: &Class, view: &ClusterView) -> bool {
    let slices = view.inventory().slices();
    let mut slices = slices.filter(|slice| gpu_drivers::by_name(&slice.pool.driver).is_some());
    slices.any(|slice| slice.devices.iter().any(|gpu| is_in(class, gpu, view.settings())))
}
