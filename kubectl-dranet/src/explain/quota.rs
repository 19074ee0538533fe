//! Claims and pods that a quota or a `LimitRange` refuses. The API server refuses a pod itself
//! (`pkg/quota/v1/evaluator/core/pods.go`); with a claim that is refused, the pod exists, its claim is
//! never created, and nothing is scheduled (`resource_claims.go` there).

mod limit_range;
mod pods;

use cluster_model::room::PodClaims;
use cluster_model::view::ClusterView;
use dra_allocator::Quantity as Parsed;
use k8s_openapi::api::core::v1::{LimitRange, Pod, ResourceQuota};
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The key for the number of claims.
const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";

/// Why this pod, or the claims that are to be created for it, are refused, if they are. `quotas` has
/// the quotas and `LimitRange`s of the cluster.
pub(crate) fn refusal(
    pod: &Pod,
    claims: &PodClaims,
    quotas: &[Value],
    view: &ClusterView,
) -> Option<String> {
    let is_new = pod.metadata.uid.is_none();
    let ranges = quotas.iter().filter(|_| is_new);
    let mut ranges = ranges.filter_map(|range| LimitRange::deserialize(range).ok());
    if let Some(why) = ranges.find_map(|range| limit_range::refusal(&range, pod)) {
        return Some(why);
    }
    let quotas = quotas.iter().filter_map(|quota| ResourceQuota::deserialize(quota).ok());
    let quotas: Vec<_> = quotas.collect();
    let of_pod = quotas.iter().filter(|_| is_new).find_map(|it| pods::refusal(it, pod, view));
    if of_pod.is_some() {
        return of_pod;
    }
    let quotas: Vec<_> = quotas.into_iter().filter(|quota| limits(quota, pod)).collect();
    needed(claims, view)
        .iter()
        .find_map(|(key, number)| quotas.iter().find_map(|quota| exceeded(quota, key, *number)))
}

/// How many of `count` pods like this one the API server creates before a quota is used up. They are
/// counted as in use.
pub(crate) fn create(pod: &Pod, count: usize, quotas: &mut [Value], view: &ClusterView) -> usize {
    for created in 0..count {
        let mut known = quotas.iter().filter_map(|it| ResourceQuota::deserialize(it).ok());
        if known.any(|quota| pods::refusal(&quota, pod, view).is_some()) {
            return created;
        }
        for object in quotas.iter_mut() {
            let Ok(quota) = ResourceQuota::deserialize(&*object) else { continue };
            pods::charge(&quota, pod, view, &mut object["status"]["used"]);
        }
    }
    count
}

/// Counts the pod, and the claims that are created for it, as in use.
pub(crate) fn charge(pod: &Pod, claims: &PodClaims, quotas: &mut [Value], view: &ClusterView) {
    let needed = needed(claims, view);
    for object in quotas {
        let Ok(quota) = ResourceQuota::deserialize(&*object) else { continue };
        pods::charge(&quota, pod, view, &mut object["status"]["used"]);
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
        for key in hard.into_iter().flat_map(BTreeMap::keys).filter(|_| limits(&quota, pod)) {
            if let Some(more) = needed.get(key) {
                object["status"]["used"][key] = json!((used(&quota, key) + more).to_string());
            }
        }
    }
}

/// What quotas count of the claims that are to be created for a pod.
fn needed(claims: &PodClaims, view: &ClusterView) -> BTreeMap<String, i64> {
    let made = claims.open.iter().filter(|open| !open.is_made);
    let mut needed: BTreeMap<String, i64> = BTreeMap::new();
    for spec in made.map(|open| &*open.spec) {
        *needed.entry(CLAIMS.to_owned()).or_default() += 1;
        for (key, number) in counted(spec, view) {
            *needed.entry(key).or_default() += number;
        }
    }
    needed
}

/// Whether a quota limits the claims of a pod. Quotas with scopes do not count claims.
fn limits(quota: &ResourceQuota, pod: &Pod) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    quota.metadata.namespace.as_deref() == Some(namespace)
        && quota
            .spec
            .as_ref()
            .is_some_and(|spec| spec.scopes.is_none() && spec.scope_selector.is_none())
}

/// The amount that is in use.
fn used(quota: &ResourceQuota, key: &str) -> i64 {
    let used = quota.status.as_ref().and_then(|status| status.used.as_ref()?.get(key));
    used.and_then(number).unwrap_or_default()
}

fn number(quantity: &Quantity) -> Option<i64> {
    parsed(quantity).map(|it| it.value())
}

fn parsed(quantity: &Quantity) -> Option<Parsed> {
    quantity.0.parse().ok()
}

/// A quantity as Kubernetes prints it.
fn printed(quantity: &Quantity) -> String {
    parsed(quantity).map_or_else(|| quantity.0.clone(), |it| it.to_string())
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

/// Whether a quota has too little left.
fn exceeded(quota: &ResourceQuota, key: &str, needed: i64) -> Option<String> {
    let hard = number(quota.spec.as_ref()?.hard.as_ref()?.get(key)?)?;
    let used = used(quota, key);
    let name = quota.metadata.name.as_deref().unwrap_or_default();
    (used + needed > hard).then(|| {
        format!(
            "quota `{name}` refuses its claim: {key} is limited to {hard}, {used} are in use, and \
             the claim needs {needed}"
        )
    })
}
