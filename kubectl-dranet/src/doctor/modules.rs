//! Nodes whose driver's pod could not load all kernel modules that it was asked for.

use super::finding::ClusterFinding;
use cluster_model::view::ClusterView;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::NodeTopology;

/// The driver's conditions of a NodeTopology (`node-driver/src/decide/modules.rs`).
const KERNEL_MODULES: &str = "KernelModules";
const PEER_MEMORY: &str = "PeerMemory";

pub(super) fn examine(view: &ClusterView) -> Vec<ClusterFinding> {
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (node, object) in view.node_topologies().filter(|(name, _)| !view.is_remembered(name)) {
        if let Some((false, message)) = condition(object, KERNEL_MODULES) {
            lacking.entry(message).or_default().insert(node);
        }
    }
    let finding = |(message, nodes): (&str, BTreeSet<&str>)| {
        let text = format!("kernel modules that the driver's pod could not load: {message}");
        ClusterFinding::on(&nodes, ("lacks", "lack"), &text)
    };
    lacking.into_iter().filter_map(finding).collect()
}

/// By which way NICs reach the memory of a node's GPUs, or why not, where its driver says it.
pub(crate) fn peer_memory(object: &NodeTopology) -> Option<&str> {
    condition(object, PEER_MEMORY).map(|(_, message)| message)
}

fn condition<'o>(object: &'o NodeTopology, kind: &str) -> Option<(bool, &'o str)> {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.filter(|condition| condition.type_ == kind);
    conditions.next().map(|condition| (condition.status == "True", condition.message.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::view::Index;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use topology_graph::{HostCondition, NodeTopologySpec, NodeTopologyStatus, conditions};

    #[test]
    fn nodes_that_lack_the_same_modules_share_a_finding() {
        let mut view = ClusterView::default();
        view.keep_topologies();
        for (node, holds, message) in
            [("a", false, "irdma is absent"), ("b", false, "irdma is absent"), ("c", true, "")]
        {
            let mut spec = NodeTopologySpec::default();
            spec.shape.hash = "0123456789abcdef".to_owned();
            let host = [HostCondition {
                kind: KERNEL_MODULES,
                holds,
                reason: "Absent",
                message: message.to_owned(),
            }];
            let conditions = conditions(&spec, &host, &[], &Time(Timestamp::UNIX_EPOCH));
            let mut object = NodeTopology::new(node, spec);
            object.status = Some(NodeTopologyStatus { conditions });
            view.apply(object).unwrap();
        }
        let found = examine(&view);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].place, "nodes a, b");
        assert_eq!(
            found[0].message,
            "lack kernel modules that the driver's pod could not load: irdma is absent"
        );
    }
}
