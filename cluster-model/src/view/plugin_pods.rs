//! The pods that have GPUs of a device plugin. Their limits say how many, and nothing says which.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::gpu_drivers;
use crate::pod_containers::in_order;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use std::collections::BTreeMap;

/// Units of extended resources.
pub(super) type Units = BTreeMap<&'static str, u64>;

impl Index<Pod> for ClusterView {
    fn apply(&mut self, object: Pod) -> Result<(), ViewError> {
        let key = ObjectKey::new(&object.metadata);
        let found = on_node(&object);
        if self.plugin_pods.get(&key) == found.as_ref().map(|(node, units)| (*node, units)) {
            return Ok(());
        }
        Index::<Pod>::delete(self, &key);
        if let Some((node, units)) = found {
            self.versions.pods_changed(node);
            self.plugin_pods.insert(key, node.to_owned(), units);
        }
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        if let Some(node) = self.plugin_pods.remove(key) {
            self.versions.pods_changed(&node);
            self.forget_if_gone(&node);
        }
    }
}

/// Returns true if a pod has GPUs of a device plugin on a node.
pub fn has_plugin_gpus(pod: &Pod) -> bool {
    on_node(pod).is_some()
}

/// The node of a pod, and the GPUs of device plugins that it has there; `None` if it has none, or has
/// ended.
fn on_node(pod: &Pod) -> Option<(&str, Units)> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let spec = pod.spec.as_ref().filter(|_| !matches!(phase, Some("Succeeded" | "Failed")))?;
    let node = spec.node_name.as_deref().filter(|node| !node.is_empty())?;
    let resources = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
    let units = resources.map(|resource| (*resource, units(spec, resource)));
    let units: Units = units.filter(|(_, units)| *units > 0).collect();
    (!units.is_empty()).then_some((node, units))
}

/// The units of an extended resource that a pod has at most at one time. An ordinary init container hands
/// its GPUs on to later containers.
fn units(spec: &PodSpec, resource: &str) -> u64 {
    let (mut running, mut most) = (0_u64, 0);
    for (kind, container) in in_order(spec) {
        let limits = container.resources.as_ref().and_then(|it| it.limits.as_ref());
        let own = limits.and_then(|limits| limits.get(resource)?.0.parse::<u64>().ok());
        let now = running.saturating_add(own.unwrap_or_default());
        most = most.max(now);
        if kind.stays() {
            running = now;
        }
    }
    most
}
