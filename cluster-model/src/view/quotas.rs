//! The resources that ResourceQuotas limit in each namespace, and for which pods.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::pod_containers::main_first;
use k8s_openapi::api::core::v1::{
    PodSpec, ResourceQuota, ResourceQuotaSpec, ScopedResourceSelectorRequirement,
};
use std::collections::{BTreeMap, BTreeSet};

/// The quotas of all namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quotas(BTreeMap<ObjectKey, Quota>);

/// What a quota limits.
#[derive(Clone, Debug, Default, PartialEq)]
struct Quota {
    limited: BTreeSet<String>,
    /// Conditions on a pod, all of which must hold.
    scopes: Vec<ScopedResourceSelectorRequirement>,
}

impl Quotas {
    /// The quotas of a namespace that limit a resource, given by its name in a quota.
    pub fn of<'a>(
        &'a self,
        namespace: &'a str,
        resource: &'a str,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let all = self.0.iter().filter(move |(key, _)| key.namespace == namespace);
        all.filter(move |(_, quota)| quota.limited.contains(resource)).map(|(key, _)| key)
    }

    /// The quotas that limit one resource but none of the others, given by their names in a quota
    /// (`requests.nvidia.com/gpu`).
    pub fn limiting<'a>(
        &'a self,
        resource: &'a str,
        others: &'a [String],
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let limiting = self.0.iter().filter(move |(_, quota)| {
            quota.limited.contains(resource)
                && others.iter().all(|other| !quota.limited.contains(other))
        });
        limiting.map(|(key, _)| key)
    }

    /// Returns true if a quota counts the requests of such a pod, by its scopes.
    pub fn counts(&self, quota: &ObjectKey, pod: &PodSpec) -> bool {
        let quota = self.0.get(quota);
        quota.is_some_and(|quota| quota.scopes.iter().all(|scope| is_in(scope, pod)))
    }
}

/// Returns true if a pod is in a scope (`podMatchesScopeFunc` in
/// `k8s.io/kubernetes/pkg/quota/v1/evaluator/core/pods.go`).
fn is_in(scope: &ScopedResourceSelectorRequirement, pod: &PodSpec) -> bool {
    match scope.scope_name.as_str() {
        "Terminating" => pod.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
        "NotTerminating" => pod.active_deadline_seconds.is_none_or(|seconds| seconds < 0),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => is_selected(scope, pod.priority_class_name.as_deref()),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        // Other scopes hold for no pod.
        _ => false,
    }
}

fn is_selected(scope: &ScopedResourceSelectorRequirement, class: Option<&str>) -> bool {
    let class = class.filter(|class| !class.is_empty());
    let mut values = scope.values.iter().flatten();
    let is_named = class.is_some_and(|class| values.any(|value| value == class));
    match scope.operator.as_str() {
        "Exists" => class.is_some(),
        "DoesNotExist" => class.is_none(),
        "In" => is_named,
        "NotIn" => !is_named,
        _ => false,
    }
}

/// Returns true if no container requests or limits CPU or memory.
fn is_best_effort(pod: &PodSpec) -> bool {
    let own = main_first(pod).filter_map(|container| container.resources.as_ref());
    let mut lists =
        own.chain(&pod.resources).flat_map(|it| [it.requests.as_ref(), it.limits.as_ref()]);
    !lists.any(|list| {
        list.is_some_and(|list| {
            ["cpu", "memory"].iter().any(|name| list.get(*name).is_some_and(|it| it.0 != "0"))
        })
    })
}

fn crosses_namespaces(pod: &PodSpec) -> bool {
    let Some(affinity) = &pod.affinity else { return false };
    let near = affinity.pod_affinity.iter().flat_map(|it| {
        let required = it.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = it.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|weighted| &weighted.pod_affinity_term))
    });
    let away = affinity.pod_anti_affinity.iter().flat_map(|it| {
        let required = it.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = it.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|weighted| &weighted.pod_affinity_term))
    });
    near.chain(away).any(|term| {
        term.namespaces.as_ref().is_some_and(|names| !names.is_empty())
            || term.namespace_selector.is_some()
    })
}

impl Quota {
    fn new(spec: ResourceQuotaSpec) -> Self {
        let by_name = spec.scopes.unwrap_or_default().into_iter();
        let by_name = by_name.map(|scope_name| ScopedResourceSelectorRequirement {
            scope_name,
            operator: "Exists".to_owned(),
            values: None,
        });
        let selector = spec.scope_selector.and_then(|selector| selector.match_expressions);
        Self {
            limited: spec.hard.unwrap_or_default().into_keys().collect(),
            scopes: by_name.chain(selector.unwrap_or_default()).collect(),
        }
    }
}

impl Index<ResourceQuota> for ClusterView {
    fn apply(&mut self, object: ResourceQuota) -> Result<(), ViewError> {
        let key = ObjectKey::new(&object.metadata);
        self.quotas.0.insert(key, Quota::new(object.spec.unwrap_or_default()));
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.quotas.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn counts(spec: &Value, pod: &Value) -> bool {
        let mut view = ClusterView::default();
        let quota = json!({ "metadata": { "name": "q", "namespace": "n" }, "spec": spec });
        view.apply(serde_json::from_value::<ResourceQuota>(quota).unwrap()).unwrap();
        let key = ObjectKey { namespace: "n".to_owned(), name: "q".to_owned() };
        view.quotas().counts(&key, &serde_json::from_value(pod.clone()).unwrap())
    }

    #[test]
    fn a_quota_counts_the_pods_in_its_scopes() {
        let class = |operator: &str, values: &[&str]| {
            let values: Vec<_> = values.to_vec();
            json!({ "scopeSelector": { "matchExpressions": [
                { "scopeName": "PriorityClass", "operator": operator, "values": values },
            ] } })
        };
        let bare = json!({ "containers": [] });
        let high = json!({ "containers": [], "priorityClassName": "high" });
        let short = json!({ "containers": [], "activeDeadlineSeconds": 60 });
        let sized = json!({ "containers": [
            { "name": "a", "resources": { "requests": { "cpu": "1" } } },
        ] });
        for (quota, pod, expected) in [
            (json!({}), &bare, true),
            (class("In", &["high"]), &high, true),
            (class("In", &["high"]), &bare, false),
            (class("In", &["low"]), &high, false),
            (class("NotIn", &["high"]), &bare, true),
            (class("Exists", &[]), &bare, false),
            (class("DoesNotExist", &[]), &bare, true),
            (json!({ "scopes": ["Terminating"] }), &bare, false),
            (json!({ "scopes": ["Terminating"] }), &short, true),
            (json!({ "scopes": ["NotTerminating"] }), &short, false),
            (json!({ "scopes": ["BestEffort"] }), &bare, true),
            (json!({ "scopes": ["NotBestEffort"] }), &sized, true),
            (json!({ "scopes": ["BestEffort"] }), &sized, false),
            (json!({ "scopes": ["CrossNamespacePodAffinity"] }), &bare, false),
        ] {
            assert_eq!(counts(&quota, pod), expected, "{quota} {pod}");
        }
    }
}
