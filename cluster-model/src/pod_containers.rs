//! The containers of a pod in the order in which they start, and when each one runs. The amounts
//! that a pod needs follow from this order (`PodRequests` in
//! `k8s.io/component-helpers/resource/helpers.go`): a container runs beside the sidecars that start
//! before it, an ordinary init container ends before the next container starts, and main
//! containers run together.

use k8s_openapi::api::core::v1::{Container, PodSpec};

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
