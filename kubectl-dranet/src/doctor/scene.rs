//! What every check reads.

use super::census::Census;
use crate::answer::DoctorMachine;
use crate::kinds::Kind;
use crate::live::Cluster;
use crate::nodes::NodeState;
use crate::source::ReadCluster;
use crate::text::counted;
use admission::plan::Policy;
use cluster_model::gpu_drivers;
use cluster_model::room::Nodes;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::BTreeMap;

/// A cluster as it was read, and what several checks derive from it.
pub(super) struct Scene<'a> {
    /// For requests; a snapshot has none.
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) seen: &'a ReadCluster,
    pub(super) view: &'a ClusterView,
    /// Admission's settings.
    pub(super) policy: &'a Policy,
    pub(super) facts: &'a Nodes,
    pub(super) states: BTreeMap<&'a str, NodeState>,
    pub(super) census: Census<'a>,
    pub(super) machines: Vec<DoctorMachine>,
    /// Pods that may wait for devices.
    pub(super) waiting: Vec<Pod>,
    /// Pods that may have GPUs of a device plugin.
    pub(super) holders: Vec<Pod>,
    /// Objects that create pods.
    pub(super) workloads: Vec<Value>,
}

impl Scene<'_> {
    /// Why nothing is known from these kinds, if the user may not read one of them.
    pub(super) fn unread(&self, kinds: &[Kind]) -> Option<String> {
        let refused: Vec<_> =
            kinds.iter().filter(|kind| self.seen.refused.contains(kind)).collect();
        let (first, others) = refused.split_first()?;
        let others = match others.len() {
            0 => String::new(),
            number => format!(" and {}", counted(number, "other kind")),
        };
        Some(format!("you may not read {}{others}", first.resource()))
    }

    /// Returns true if a device plugin offers GPUs on a node.
    pub(super) fn has_plugin_gpus(&self, node: &str) -> bool {
        let mut resources = gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources);
        resources.any(|resource| self.view.plugin_units(node, resource).is_some())
    }

    /// The pods of a part of the control plane, by name.
    pub(super) fn of_control_plane(&self, part: &str) -> impl Iterator<Item = (&str, &Value)> {
        let pods = self.seen.of_kind("Pod").filter(move |pod| {
            let metadata = &pod["metadata"];
            metadata["namespace"] == "kube-system" && metadata["labels"]["component"] == part
        });
        pods.map(|pod| (pod["metadata"]["name"].as_str().unwrap_or_default(), pod))
    }
}

/// The words with which the first container of a pod starts.
pub(super) fn words(pod: &Value) -> impl Iterator<Item = &str> {
    let container = &pod["spec"]["containers"][0];
    let words = ["command", "args"].into_iter().filter_map(|field| container[field].as_array());
    words.flatten().filter_map(Value::as_str)
}
