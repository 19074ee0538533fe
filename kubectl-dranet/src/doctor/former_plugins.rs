//! Pods that got their GPUs from a device plugin, on nodes whose GPUs a DRA driver publishes now. The
//! scheduler does not know that these GPUs are in use.

use crate::answer::{DoctorFinding, Severity};
use crate::source::Seen;
use crate::text::counted;
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::node_devices::published;
use cluster_model::room::requests;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// The most pods that a finding names.
const NAMED: usize = 3;

/// The nodes whose GPUs a DRA driver publishes, and that have or had a device plugin for them: the
/// kubelet keeps the resource in the node's status, with amount 0, when the device plugin is gone.
pub(super) fn nodes(seen: &Seen) -> BTreeMap<String, Vec<&'static GpuDriver>> {
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

/// Reports the pods that hold GPUs of a device plugin on these nodes.
pub(super) fn examine(
    nodes: &BTreeMap<String, Vec<&'static GpuDriver>>,
    pods: &[Pod],
) -> Vec<DoctorFinding> {
    let mut holders: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for pod in pods {
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
    holders.into_iter().map(|(node, pods)| finding(node, &pods)).collect()
}

fn finding(node: &str, pods: &BTreeSet<String>) -> DoctorFinding {
    let named: Vec<_> = pods.iter().take(NAMED).map(String::as_str).collect();
    let more = match pods.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "has GPUs of a DRA driver, and {} with GPUs of a device plugin ({}{more}): the scheduler can give \
         these GPUs to other pods; drain the node",
        counted(pods.len(), "pod"),
        named.join(", ")
    );
    DoctorFinding::new(Severity::Error, format!("node {node}"), message)
}

/// Returns true if a pod that has not ended has a limit on GPUs that no claim serves.
fn has_plugin_gpus(pod: &Pod, driver: &GpuDriver) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let is_by_claim = status.is_some_and(|it| it.extended_resource_claim_status.is_some());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    let Some(spec) = pod.spec.as_ref().filter(|_| !has_ended && !is_by_claim) else { return false };
    let requests = requests(spec);
    driver.extended_resources.iter().any(|resource| requests.units(resource) > 0)
}
