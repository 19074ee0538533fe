//! Detects claims that escape a quota of the namespace or of Kueue, and `LimitRange`s that refuse pods with claims.
//!
//! A quota on an extended resource of GPUs counts container limits, but not the claim that
//! replaces them, unless the claim's class stands for that resource: then the API server counts
//! the claim too. A `LimitRange` that bounds the resource refuses pods without such limits.

mod kueue;

use crate::claim::class_names;
use crate::intent::{Intent, of_driver};
use crate::plan::Plan;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::MinorVersion;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use std::collections::BTreeSet;

/// The quotas of a cluster, and what counts the GPUs of claims in them.
#[derive(Clone, Copy, Debug)]
pub struct Quotas<'a> {
    /// The cluster.
    pub view: &'a ClusterView,
    /// The extended resource that pods request for each GPU of their claim, if any.
    pub counted: Option<&'a str>,
}

impl Quotas<'_> {
    /// Why the claim escapes the quotas that count a pod's limits: those of its namespace, or Kueue's.
    pub(crate) fn escape(
        &self,
        intent: &Intent,
        plan: &Plan,
        (namespace, pod): (&str, &Pod),
    ) -> Option<String> {
        let spec = pod.spec.as_ref()?;
        self.of_namespace(intent, plan, (namespace, spec)).or_else(|| {
            // Beside GPUs of a device plugin the limits stay.
            let has_gpus = intent.gpus > 0 && plan.plugin.is_none();
            has_gpus.then(|| kueue::escape(pod, intent.resource.is_some(), self.counted)).flatten()
        })
    }

    /// Why the claim escapes the quotas of its namespace: some limit the replaced resource,
    /// and none counts the claim.
    fn of_namespace(
        &self,
        intent: &Intent,
        plan: &Plan,
        place: (&str, &PodSpec),
    ) -> Option<String> {
        let view = self.view;
        let (namespace, _) = place;
        let own = intent.resource.as_ref();
        let devices = plan.claim.devices.as_ref();
        let requests = devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
        let gpus = requests.iter().filter(|request| !plan.nic_requests.contains(&request.name));
        let class = gpus.flat_map(class_names).next()?;
        let mut keys = self.counting(class).into_iter();
        let counts = own.is_some_and(|own| own.class.as_deref() == Some(class))
            || keys.any(|key| view.quotas().of(namespace, &key).next().is_some());
        if counts {
            return None;
        }
        if let Some(own) = own {
            return self.refusal((&own.name, class), place, "replaces the limits of this pod");
        }
        // Without limits no quota on an extended resource counts the pod at all.
        of_driver(plan.driver, view, |name: &str| {
            view.quotas().of(namespace, &limited(name)).next().is_some()
        })
        .iter()
        .find_map(|name| self.refusal((name, class), place, "gives this pod its GPUs"))
    }

    /// Why the claim escapes the quotas on an extended resource, if there are any.
    fn refusal(
        &self,
        (resource, class): (&str, &str),
        (namespace, pod): (&str, &PodSpec),
        claim: &str,
    ) -> Option<String> {
        let quotas = self.escaped(resource, class);
        let quotas = quotas.iter().filter(|key| key.namespace == namespace);
        let quotas = quotas.filter(|key| self.view.quotas().counts(key, pod));
        let quotas: Vec<_> = quotas.map(|key| format!("`{}`", key.name)).collect();
        if quotas.is_empty() {
            return None;
        }
        let verb = if quotas.len() == 1 { "limits" } else { "limit" };
        Some(format!(
            "quota {} {verb} {}, which does not count the claim that {claim}; {}",
            quotas.join(", "),
            limited(resource),
            self.instead(resource, class)
        ))
    }

    /// Quotas in any namespace that limit the extended resource but not claims by this class.
    pub fn escaped(&self, resource: &str, class: &str) -> BTreeSet<ObjectKey> {
        if self.view.extended_resource(class) == Some(resource) {
            return BTreeSet::new();
        }
        self.view.quotas().limiting(&limited(resource), &self.counting(class)).cloned().collect()
    }

    /// How to count such claims.
    pub fn instead(&self, resource: &str, class: &str) -> String {
        let counting = self.counted.map_or_else(|| devices(class), limited);
        format!(
            "limit {counting}, or set extendedResourceName: {resource} in DeviceClass `{class}`"
        )
    }

    /// The keys in a quota that count claims for devices of a class: that of the devices, that of what pods
    /// request beside them and, with the feature `DRAExtendedResource` (on by default since 1.36), that of the
    /// class's own extended resource (`addExtendedResourceQuota` in
    /// `k8s.io/kubernetes/pkg/quota/v1/evaluator/core/resource_claims.go`).
    fn counting(&self, class: &str) -> Vec<String> {
        let has_own = self.view.settings().version >= MinorVersion::V1_36;
        let own = has_own.then(|| format!("requests.deviceclass.resource.kubernetes.io/{class}"));
        [devices(class)].into_iter().chain(self.counted.map(limited)).chain(own).collect()
    }
}

/// Why the API server refuses the pod once a claim has replaced its limits: a `LimitRange` bounds a
/// resource of the plan's GPUs, and so demands a limit.
pub(crate) fn demanded_limit(plan: &Plan, namespace: &str, view: &ClusterView) -> Option<String> {
    plan.driver.extended_resources.iter().find_map(|resource| {
        let found = view.limit_ranges().demanding(namespace, resource).next()?;
        Some(format!("LimitRange `{}` {}", found.name, bounds(resource)))
    })
}

/// What a `LimitRange` that bounds the resource does, and what to do.
pub fn bounds(resource: &str) -> String {
    format!(
        "bounds {resource}, so the API server refuses pods whose limits a claim replaces (`No limit \
         is specified`); take {resource} out of it, and limit devices with a quota"
    )
}

/// The extended resource's key in a quota.
pub fn limited(resource: &str) -> String {
    format!("requests.{resource}")
}

/// The key in a quota for devices of a class.
fn devices(class: &str) -> String {
    format!("{class}.deviceclass.resource.k8s.io/devices")
}
