//! Claims that a quota refuses: the pod exists, its claim is never created, and nothing is scheduled
//! (`pkg/quota/v1/evaluator/core/resource_claims.go`).

use cluster_model::predict::PodClaims;
use cluster_model::view::ClusterView;
use dra_allocator::Quantity as Parsed;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;

/// The key for the number of claims.
const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";

/// Why the claims that are to be created for this pod are refused, if they are. `planned` is the
/// one that admission writes.
pub(super) fn refusal(
    pod: &Pod,
    planned: Option<&ResourceClaimSpec>,
    claims: &PodClaims,
    quotas: &[Value],
    view: &ClusterView,
) -> Option<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let quotas = quotas.iter().filter_map(|quota| ResourceQuota::deserialize(quota).ok());
    let quotas: Vec<_> =
        quotas.filter(|quota| quota.metadata.namespace.as_deref() == Some(namespace)).collect();
    let made = claims.open.iter().filter(|open| !open.is_made);
    let mut needed: BTreeMap<String, i64> = BTreeMap::new();
    for spec in made.map(|open| &*open.spec).chain(planned) {
        *needed.entry(CLAIMS.to_owned()).or_default() += 1;
        for (key, number) in counted(spec, view) {
            *needed.entry(key).or_default() += number;
        }
    }
    needed
        .iter()
        .find_map(|(key, number)| quotas.iter().find_map(|quota| exceeded(quota, key, *number)))
}

/// What a quota counts of a claim: the devices of each class and, if the class stands for an
/// extended resource, that resource.
fn counted(spec: &ResourceClaimSpec, view: &ClusterView) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    let requests = spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    for (class, number) in requests.flat_map(of_request) {
        let resource = view.extended_resource(&class).map(|name| format!("requests.{name}"));
        let implicit = format!("requests.deviceclass.resource.kubernetes.io/{class}");
        let keys = [format!("{class}.deviceclass.resource.k8s.io/devices"), implicit];
        for key in keys.into_iter().chain(resource) {
            *all.entry(key).or_default() += number;
        }
    }
    all
}

/// The most devices of each class that a request can get.
fn of_request(request: &DeviceRequest) -> BTreeMap<String, i64> {
    let mut most = BTreeMap::new();
    if let Some(exactly) = &request.exactly {
        most.insert(exactly.device_class_name.clone(), exactly.count.unwrap_or(1));
    }
    for way in request.first_available.iter().flatten() {
        let number: &mut i64 = most.entry(way.device_class_name.clone()).or_default();
        *number = (*number).max(way.count.unwrap_or(1));
    }
    most
}

/// Whether a quota has too little left. Quotas with scopes do not count claims.
fn exceeded(quota: &ResourceQuota, key: &str, needed: i64) -> Option<String> {
    let spec = quota.spec.as_ref()?;
    if spec.scopes.is_some() || spec.scope_selector.is_some() {
        return None;
    }
    let number = |quantity: &Quantity| Some(quantity.0.parse::<Parsed>().ok()?.value());
    let hard = number(spec.hard.as_ref()?.get(key)?)?;
    let used = quota.status.as_ref().and_then(|status| status.used.as_ref()?.get(key));
    let used = used.and_then(number).unwrap_or_default();
    let name = quota.metadata.name.as_deref().unwrap_or_default();
    (used + needed > hard).then(|| {
        format!(
            "quota `{name}` refuses its claim: {key} is limited to {hard}, {used} are in use, and \
             the claim needs {needed}"
        )
    })
}
