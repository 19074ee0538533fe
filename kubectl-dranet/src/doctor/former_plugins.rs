//! Pods that got their GPUs from a device plugin, on nodes whose GPUs a DRA driver publishes now. The
//! scheduler does not know that these GPUs are in use.

use super::finding::{Findings, named};
use super::scene::Scene;
use crate::kinds::{PODS, Query};
use crate::source::ReadCluster;
use crate::text::counted;
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::node_devices::published;
use cluster_model::room::requests;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// The nodes whose GPUs a DRA driver publishes, and that have or had a device plugin for them: the
/// kubelet keeps the resource in the node's status, with amount 0, when the device plugin is gone.
fn nodes(seen: &ReadCluster) -> BTreeMap<String, Vec<&'static GpuDriver>> {
    seen.of_kind("Node")
        .filter_map(|node| {
            let name = node["metadata"]["name"].as_str()?;
            let drivers: Vec<_> = gpu_drivers::all()
                .iter()
                .filter(|driver| {
                    let mut resources = driver.extended_resources.iter();
                    resources.any(|resource| node["status"]["capacity"].get(*resource).is_some())
                })
                .filter(|driver| {
                    published(&seen.view, name).any(|(_, gpu)| *gpu.id().driver == *driver.driver)
                })
                .collect();
            (!drivers.is_empty()).then(|| (name.to_owned(), drivers))
        })
        .collect()
}

/// The pods to read: all of the cluster, if there are such nodes.
pub(super) fn queries(seen: &ReadCluster) -> Vec<Query> {
    let without = "it is not checked whether pods still have GPUs of a device plugin";
    if nodes(seen).is_empty() { Vec::new() } else { vec![PODS.all(without)] }
}

/// The pods that hold GPUs of a device plugin on these nodes.
pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    let nodes = nodes(scene.seen);
    let mut holders: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for pod in &scene.holders {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let Some((node, drivers)) = node.and_then(|node| nodes.get_key_value(node)) else {
            continue;
        };
        if drivers.iter().any(|driver| has_plugin_gpus(pod, driver)) {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            holders.entry(node).or_default().insert(format!("{namespace}/{name}"));
        }
    }
    for (node, pods) in holders {
        let message = format!(
            "has GPUs of a DRA driver, and {} with GPUs of a device plugin ({}): the scheduler can give \
             these GPUs to other pods; drain the node",
            counted(pods.len(), "pod"),
            named(&pods)
        );
        found.error(format!("node {node}"), message);
    }
}

/// Returns true if a pod that has not ended has a limit on GPUs that no claim serves.
fn has_plugin_gpus(pod: &Pod, driver: &GpuDriver) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let is_by_claim = status.is_some_and(|it| it.extended_resource_claim_status.is_some());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    if has_ended || is_by_claim {
        return false;
    }
    let requests = requests(pod);
    driver.extended_resources.iter().any(|resource| requests.units(resource) > 0)
}
