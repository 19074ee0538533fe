//! What a quota counts of a pod.

use super::{parsed, printed};
use cluster_model::pod_containers::main_first;
use cluster_model::room::{Amounts, requests};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::Quantity as Parsed;
use dra_allocator::quantity::Format;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceQuota};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Resources that each container must set if a quota limits them (`Constraints` of the evaluator).
const MUST_BE_SET: [&str; 2] = ["cpu", "memory"];

/// Why the API server refuses a new pod because of this quota.
pub(super) fn refusal(quota: &ResourceQuota, pod: &Pod, view: &ClusterView) -> Option<String> {
    let spec = pod.spec.as_ref().filter(|_| counts(quota, pod, view))?;
    let hard = quota.spec.as_ref()?.hard.as_ref()?;
    let name = quota.metadata.name.as_deref().unwrap_or_default();
    if let Some(key) = hard.keys().find(|key| is_unset(key, spec)) {
        return Some(format!(
            "quota `{name}` refuses it: it limits {key}, and a container of the pod does not set it"
        ));
    }
    let of_status = quota.status.as_ref().and_then(|status| status.used.as_ref());
    let (limit, used) = (Amounts::new(Some(hard)), Amounts::new(of_status));
    let mut needed = needed(pod).into_iter();
    let (key, _) = needed.find(|(key, amount)| {
        hard.contains_key(key) && *amount > 0 && used.get(key) + amount > limit.get(key)
    })?;
    let in_use = of_status.and_then(|used| used.get(&key));
    let in_use = in_use.map_or_else(|| "0".to_owned(), printed);
    Some(format!(
        "quota `{name}` refuses it: {key} is limited to {}, and {in_use} are in use",
        printed(&hard[&key])
    ))
}

/// Counts a pod as in use.
pub(super) fn charge(quota: &ResourceQuota, pod: &Pod, view: &ClusterView, used: &mut Value) {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let Some(hard) = hard.filter(|_| counts(quota, pod, view)) else { return };
    let known = Amounts::new(quota.status.as_ref().and_then(|status| status.used.as_ref()));
    for (key, amount) in needed(pod).into_iter().filter(|(key, _)| hard.contains_key(key)) {
        let format = parsed(&hard[&key]).map_or(Format::DecimalSi, |limit| limit.format());
        let sum = Parsed::from_milli(known.get(&key) + amount, format);
        used[&key] = json!(sum.to_string());
    }
}

/// Whether a quota counts the pod, by its namespace and its scopes.
fn counts(quota: &ResourceQuota, pod: &Pod, view: &ClusterView) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let key = ObjectKey::new(&quota.metadata);
    key.namespace == namespace
        && pod.spec.as_ref().is_some_and(|spec| view.quotas().counts(&key, spec))
}

/// What a pod needs of each resource of a quota, in thousandths.
fn needed(pod: &Pod) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::from(["pods", "count/pods"].map(|key| (key.to_owned(), 1000)));
    let (requested, limited) = (requests(pod), limits(pod));
    for name in requested.names() {
        all.insert(name.to_owned(), requested.get(name));
        all.insert(format!("requests.{name}"), requested.get(name));
    }
    for name in limited.names() {
        all.insert(format!("limits.{name}"), limited.get(name));
    }
    all
}

/// The limits of a pod (`PodLimits` in `k8s.io/component-helpers/resource/helpers.go`): what it would
/// request if its containers requested their limits.
pub(super) fn limits(pod: &Pod) -> Amounts {
    let mut pod = pod.clone();
    let Some(spec) = &mut pod.spec else { return Amounts::default() };
    let overhead = Amounts::new(spec.overhead.take().as_ref());
    if let Some(resources) = &mut spec.resources {
        resources.requests = resources.limits.clone();
    }
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        if let Some(resources) = &mut container.resources {
            resources.requests = resources.limits.clone();
        }
    }
    let mut limits = requests(&pod);
    let unlimited: Vec<_> = overhead.names().filter(|name| limits.get(name) == 0).collect();
    limits.add(&overhead.without(&unlimited));
    limits
}

/// Whether a container lacks a request or limit that the key of a quota demands.
fn is_unset(key: &str, spec: &PodSpec) -> bool {
    let (of_limits, name) = match key.split_once('.') {
        Some(("limits", name)) => (true, name),
        Some(("requests", name)) => (false, name),
        _ => (false, key),
    };
    MUST_BE_SET.contains(&name)
        && spec.resources.is_none()
        && !main_first(spec).all(|container| sets(container, name, of_limits))
}

/// Whether a container sets a limit, or otherwise a request.
fn sets(container: &Container, name: &str, is_limit: bool) -> bool {
    let Some(resources) = &container.resources else { return false };
    let (limits, requests) = (&resources.limits, &resources.requests);
    // A limit alone is the request too.
    let lists = if is_limit { [limits, limits] } else { [requests, limits] };
    lists.into_iter().flatten().any(|list| list.contains_key(name))
}
