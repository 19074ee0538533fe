//! Claims as they are after their pod was bound.

use cluster_model::room::OpenClaim;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::ClaimAllocation;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    AllocationResult, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimSpec,
    ResourceClaimStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Replaces the random ID of a device share.
const SHARE: &str = "simulated";

/// The name of a claim. For a claim that is created from a template in the pod, a free
/// name.
pub(super) fn name(
    view: &ClusterView,
    pod: &Pod,
    open: &OpenClaim,
    entry: Option<&str>,
) -> ObjectKey {
    let Some(entry) = entry else { return open.key.clone() };
    let pod = pod.metadata.name.as_deref().unwrap_or("pod");
    let namespace = open.key.namespace.clone();
    let mut key = ObjectKey { namespace, name: format!("{pod}-{entry}") };
    while view.claim(&key).is_some() {
        key.name.push_str("-simulated");
    }
    key
}

/// The claim of this name with its allocated devices, reserved for the pod.
pub(super) fn allocated(
    view: &ClusterView,
    pod: &Pod,
    open: &OpenClaim,
    (key, allocation): (&ObjectKey, &ClaimAllocation),
) -> ResourceClaim {
    let labels = if open.is_made {
        view.claim(key).map(|claim| claim.labels.clone())
    } else {
        let template = view.template(&open.key);
        template.and_then(|template| template.metadata.as_ref()?.labels.clone())
    };
    let spec = (*open.spec).clone();
    with_devices(pod, key, (labels, spec), allocation)
}

/// The claim that kube-scheduler makes for a pod's extended resources, with a free name.
pub(super) fn of_extended(
    view: &ClusterView,
    pod: &Pod,
    spec: ResourceClaimSpec,
    allocation: &ClaimAllocation,
) -> ResourceClaim {
    let name = pod.metadata.name.as_deref().unwrap_or("pod");
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let mut key = ObjectKey { namespace, name: format!("{name}-extended-resources") };
    while view.claim(&key).is_some() {
        key.name.push_str("-simulated");
    }
    with_devices(pod, &key, (None, spec), allocation)
}

fn with_devices(
    pod: &Pod,
    key: &ObjectKey,
    (labels, spec): (Option<BTreeMap<String, String>>, ResourceClaimSpec),
    allocation: &ClaimAllocation,
) -> ResourceClaim {
    let mut result = AllocationResult::from(allocation);
    let results = result.devices.iter_mut().flat_map(|it| it.results.iter_mut().flatten());
    for (wire, own) in results.zip(&allocation.results) {
        wire.share_id = own.is_share.then(|| SHARE.to_owned());
    }
    let name = pod.metadata.name.clone().unwrap_or_default();
    let consumer = ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        uid: pod.metadata.uid.clone().unwrap_or_else(|| name.clone()),
        name,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            labels,
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: Some(ResourceClaimStatus {
            allocation: Some(result),
            reserved_for: Some(vec![consumer]),
            ..ResourceClaimStatus::default()
        }),
    }
}
