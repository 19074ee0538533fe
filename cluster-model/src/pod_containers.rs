//! The containers of a pod in the order in which they start, and when each one runs. The amounts
//! that a pod needs follow from this order (`PodRequests` in
//! `k8s.io/component-helpers/resource/helpers.go`): a container runs beside the sidecars that start
//! before it, an ordinary init container ends before the next container starts, and main
//! containers run together.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// The annotation with the container that `kubectl logs` and `kubectl exec` use by default.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Names of containers that other projects add to pods, and the projects. With `*` at its end, it is what
/// names begin with.
const SIDECARS: &[(&str, &str)] = &[
    ("azwi-proxy", "Azure Workload Identity"),
    ("cloud-sql-proxy", "Cloud SQL Auth Proxy"),
    ("cloudsql-proxy", "Cloud SQL Auth Proxy before version 2"),
    ("consul-dataplane", "Consul"),
    ("csql-*", "Cloud SQL Proxy Operator"),
    ("daprd", "Dapr"),
    ("datadog-agent-injected", "Datadog"),
    ("envoy", "AWS App Mesh, Open Service Mesh"),
    ("envoy-sidecar", "Consul before version 1"),
    ("fluent-bit*", "Fluent Bit"),
    ("fluentd*", "Fluentd"),
    ("gke-gcsfuse-sidecar", "Cloud Storage FUSE on GKE"),
    ("hf-mount", "Hugging Face's CSI driver"),
    ("istio-proxy", "Istio"),
    ("jaeger-agent", "Jaeger's operator"),
    ("kuma-sidecar", "Kuma"),
    ("linkerd-debug", "Linkerd"),
    ("linkerd-proxy", "Linkerd"),
    ("oauth2-proxy", "OAuth2 Proxy"),
    ("otc-container", "OpenTelemetry's operator"),
    ("otel-collector", "OpenTelemetry's collector"),
    ("queue-proxy", "Knative"),
    ("vault-agent", "Vault"),
    ("xray-daemon", "AWS App Mesh"),
];

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerKind {
    /// Until it has ended, before the next one starts.
    Init,
    /// From its start until the pod ends: an init container that restarts always.
    Sidecar,
    /// Beside all sidecars and other main containers.
    Main,
}

impl ContainerKind {
    /// Returns true if the container still runs when later ones start.
    pub fn stays(self) -> bool {
        self != Self::Init
    }
}

/// The containers in the order in which they start.
pub fn in_order(spec: &PodSpec) -> impl Iterator<Item = (ContainerKind, &Container)> {
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|container| match container.restart_policy.as_deref() {
        Some("Always") => (ContainerKind::Sidecar, container),
        _ => (ContainerKind::Init, container),
    });
    init.chain(spec.containers.iter().map(|container| (ContainerKind::Main, container)))
}

/// All containers of a pod, main ones first.
pub fn main_first(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

/// Names of the main containers.
pub fn main_names(pod: &Pod) -> impl Iterator<Item = &str> {
    let main = pod.spec.iter().flat_map(|spec| &spec.containers);
    main.map(|container| container.name.as_str())
}

/// The containers that could be the workload's: the one that kubectl uses by default, otherwise the
/// main containers that no other project adds to pods, otherwise all main containers. A pod that does not
/// say which container gets its devices gives them to the only one.
pub fn workloads(pod: &Pod) -> Vec<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    let default = annotations.and_then(|annotations| annotations.get(DEFAULT_CONTAINER));
    if let Some(default) = main_names(pod).find(|name| default.is_some_and(|it| it == name)) {
        return vec![default];
    }
    let own: Vec<&str> = main_names(pod).filter(|name| !is_sidecar(name)).collect();
    if own.is_empty() { main_names(pod).collect() } else { own }
}

/// Whether other projects add containers of this name.
fn is_sidecar(container: &str) -> bool {
    SIDECARS.iter().any(|(name, _)| match name.strip_suffix('*') {
        Some(start) => container.starts_with(start),
        None => container == *name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sidecars_are_known_by_name() {
        for (name, project) in SIDECARS {
            let sidecar = name.replace('*', "a");
            for containers in [[&*sidecar, "main"], ["main", &*sidecar]] {
                let containers = containers.map(|name| json!({ "name": name }));
                let pod = json!({ "spec": { "containers": containers } });
                let pod: Pod = serde_json::from_value(pod).unwrap();
                assert_eq!(workloads(&pod), ["main"], "{project}");
            }
        }
    }
}
