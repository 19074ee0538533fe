//! Reads the GPU limits of containers, and decides which of the pod's GPUs each container
//! gets.
//!
//! Follows how kube-scheduler sums a pod's resources (`resourcehelpers.PodRequests`):
//! main containers and sidecars run together. An ordinary init container runs alone
//! beside the sidecars that started before it, and uses devices that others get later.

use super::limit_defaults::Defaults;
use super::{GpuResource, GpuResources, Share, annotations, deny};
use crate::denial::Denial;
use cluster_model::gpu_drivers;
use cluster_model::names::annotation;
use cluster_model::pod_containers::{ContainerKind, in_order, main_first};
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::{BTreeMap, HashSet};

/// GPU limits of a pod.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// The resource that the limits name; `None` if no container has GPU limits.
    pub(super) resource: Option<GpuResource>,
    /// The GPUs of each container.
    pub(super) shares: Vec<Share>,
}

impl Limits {
    /// The containers with GPU limits.
    pub(super) fn containers(&self) -> HashSet<&str> {
        self.shares.iter().map(|share| share.container.as_str()).collect()
    }
}

/// The GPU limits of a pod. Where the pod has an annotation for its GPUs (`is_counted`), limits that
/// are the defaults of a `LimitRange` are no requests.
pub(super) fn limits(
    pod: &Pod,
    trigger: &str,
    resources: &GpuResources,
    is_counted: bool,
) -> Result<Limits, Denial> {
    let defaults = if is_counted { Defaults::new(pod) } else { Defaults::default() };
    let mut resource: Option<&GpuResource> = None;
    let mut counts = Vec::new();
    for (kind, container) in pod.spec.iter().flat_map(in_order) {
        for (name, quantity) in gpu_limits(container, resources) {
            if defaults.has(kind, &container.name, name) {
                continue;
            }
            let found = known(container, name, trigger, resources)?;
            let first = &resource.get_or_insert(found).name;
            if first != name {
                let why = format!(
                    "container `{}` has a limit on {name} and another one on {first}; the GPUs of \
                     one pod are of one kind",
                    container.name
                );
                return Err(deny(trigger, why));
            }
            counts.push((kind, &container.name, number(container, name, quantity, trigger)?));
        }
    }
    Ok(Limits { resource: resource.cloned(), shares: share_out(&counts) })
}

/// Which GPUs of a pod nobody asked for: those that a `LimitRange` sets in containers without a limit,
/// and what to do. `None` if there are none, or if the pod says its number of GPUs, which counts instead.
pub(crate) fn unasked(pod: &Pod, resources: &GpuResources, view: &ClusterView) -> Option<String> {
    if annotations(pod).contains_key(annotation::GPUS) {
        return None;
    }
    let defaults = Defaults::new(pod);
    let mut set: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (kind, container) in pod.spec.iter().flat_map(in_order) {
        for (name, amount) in gpu_limits(container, resources) {
            if defaults.has(kind, &container.name, name) {
                let by = set.entry((name, amount.0.as_str())).or_default();
                by.push(format!("`{}`", container.name));
            }
        }
    }
    let ((resource, amount), containers) = set.into_iter().next()?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let range = match view.limit_ranges().setting(namespace, resource).next() {
        Some(range) => format!("LimitRange `{}`", range.name),
        None => "a LimitRange".to_owned(),
    };
    Some(format!(
        "{range} of the namespace sets the limit {resource}: \"{amount}\" in {}, where the pod has none; \
         its max is such a default too; set {}, which counts instead, or take {resource} out of the \
         LimitRange",
        containers.join(", "),
        annotation::GPUS
    ))
}

/// Assigns GPUs in the order in which containers start. A container that stays keeps its GPUs; an
/// init container's are free again when it has ended.
fn share_out(counts: &[(ContainerKind, &String, u32)]) -> Vec<Share> {
    let mut next = 0_u32;
    let mut shares = Vec::new();
    for (kind, name, count) in counts {
        let end = next.saturating_add(*count);
        let stays = kind.stays();
        shares.push(Share { container: (*name).clone(), gpus: next..end, stays });
        if kind.stays() {
            next = end;
        }
    }
    shares
}

/// Names of all containers, main ones first.
pub(super) fn names(pod: &Pod) -> Vec<&str> {
    pod.spec.iter().flat_map(main_first).map(|container| container.name.as_str()).collect()
}

/// A container's limits on GPU resources, whole or not. Zero is no request.
fn gpu_limits<'a>(
    container: &'a Container,
    resources: &'a GpuResources,
) -> impl Iterator<Item = (&'a str, &'a Quantity)> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    limits
        .into_iter()
        .flatten()
        .map(|(name, quantity)| (name.as_str(), quantity))
        .filter(move |(name, quantity)| is_gpu(name, resources) && quantity.0 != "0")
}

/// Whether a resource stands for GPUs, or for parts of them.
fn is_gpu(name: &str, resources: &GpuResources) -> bool {
    let mut partial = gpu_drivers::all().iter().flat_map(|driver| driver.partial_resources);
    resources.get(name).is_some() || partial.any(|start| name.starts_with(start))
}

/// The resource of this name, if it stands for whole GPUs.
fn known<'a>(
    container: &Container,
    name: &str,
    trigger: &str,
    resources: &'a GpuResources,
) -> Result<&'a GpuResource, Denial> {
    resources.get(name).ok_or_else(|| {
        let whole = super::extended_resources().collect::<Vec<_>>().join(", ");
        let why = format!(
            "the limit {name} of container `{}` is for a part or a share of a GPU; only whole GPUs \
             can be aligned with NICs",
            container.name
        );
        deny(trigger, why).allowed(format!("a limit of one of {whole}"))
    })
}

fn number(
    container: &Container,
    name: &str,
    quantity: &Quantity,
    trigger: &str,
) -> Result<u32, Denial> {
    quantity.0.parse().map_err(|_| {
        let why = format!(
            "the limit {name}: \"{}\" of container `{}` is not a whole number of GPUs",
            quantity.0, container.name
        );
        deny(trigger, why)
    })
}
