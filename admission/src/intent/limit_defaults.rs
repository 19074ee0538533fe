//! Limits that a `LimitRange` set, which nobody asked for.
//!
//! The API server's plugin `LimitRanger` runs before webhooks, sets the defaults of the namespace, of
//! which the maximum is one too, and lists them in an annotation (`mergePodResourceRequirements` in
//! `k8s.io/kubernetes/plugin/pkg/admission/limitranger/admission.go`).

use super::annotations;
use cluster_model::pod_containers::ContainerKind;
use k8s_openapi::api::core::v1::Pod;

/// The annotation with the defaults that were set.
pub const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// What the annotation begins with.
pub const START: &str = "LimitRanger plugin set: ";

/// The list of limits that are defaults: `cpu, nvidia.com/gpu limit for container main; …`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults<'p>(&'p str);

impl<'p> Defaults<'p> {
    pub(super) fn new(pod: &'p Pod) -> Self {
        let listed = annotations(pod).get(ANNOTATION);
        Self(listed.and_then(|text| text.strip_prefix(START)).unwrap_or_default())
    }

    /// Returns true if this limit of a container is a default.
    pub(super) fn has(self, kind: ContainerKind, container: &str, resource: &str) -> bool {
        let list = if kind == ContainerKind::Main { "container" } else { "init container" };
        let end = format!(" limit for {list} {container}");
        let mut resources = self.0.split("; ").filter_map(|entry| entry.strip_suffix(&end));
        resources.any(|resources| resources.split(", ").any(|name| name == resource))
    }
}
