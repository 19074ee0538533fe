//! Nodes whose driver's pod could not load all kernel modules that it was asked for, nodes that wait for
//! the driver of their NICs' vendor, and nodes that do not bind or number NICs as they are set to.

use super::finding::Findings;
use super::scene::Scene;
use cluster_model::view::ClusterView;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::NodeTopology;

/// The driver's conditions of a NodeTopology (`node-driver/src/decide/modules.rs`).
const KERNEL_MODULES: &str = "KernelModules";
const PEER_MEMORY: &str = "PeerMemory";
/// The same, in `vendor_driver.rs` there.
const VENDOR_DRIVER: &str = "VendorDriver";

/// The same, in `binding.rs` there.
const BOUND_AS_SET: &str = "NICsBoundAsSet";
/// The same, in `rails.rs` there.
const RAILS_APPLIED: &str = "RailsApplied";

/// What is said of nodes on which a condition is false: its kind, and text before its message.
const FINDINGS: [(&str, &str); 4] = [
    (KERNEL_MODULES, "lacks kernel modules that the driver's pod could not load: "),
    (VENDOR_DRIVER, "waits for the driver of the NICs' vendor: "),
    (BOUND_AS_SET, "differs in how NICs are bound: "),
    (RAILS_APPLIED, "has rails that are not as the operator set them: "),
];

pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    in_view(scene.view, found);
}

/// One finding for all nodes on which a condition is false for the same reason.
fn in_view(view: &ClusterView, found: &mut Findings) {
    for (kind, text) in FINDINGS {
        let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (node, object) in view.node_topologies().filter(|(name, _)| !view.is_remembered(name)) {
            if let Some((false, message)) = condition(object, kind) {
                nodes.entry(message).or_default().insert(node);
            }
        }
        found.on_each(nodes, |message| format!("{text}{message}"));
    }
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
        for (node, kind, holds, message) in [
            ("a", KERNEL_MODULES, false, "irdma is absent"),
            ("b", KERNEL_MODULES, false, "irdma is absent"),
            ("c", KERNEL_MODULES, true, ""),
            ("d", VENDOR_DRIVER, false, "version 2 is being loaded"),
            ("e", VENDOR_DRIVER, true, "version 2 is loaded"),
            ("f", BOUND_AS_SET, false, "it is set to bind NICs late"),
            ("g", BOUND_AS_SET, true, ""),
            ("h", RAILS_APPLIED, false, "the node's file `rails` is not used: it is empty"),
        ] {
            let mut spec = NodeTopologySpec::default();
            spec.shape.hash = "0123456789abcdef".to_owned();
            let (reason, message) = ("Reason", message.to_owned());
            let host = [HostCondition { kind, holds, reason, message, entries: vec![] }];
            let conditions = conditions(&spec, &host, &[], &Time(Timestamp::UNIX_EPOCH));
            let mut object = NodeTopology::new(node, spec);
            object.status = Some(NodeTopologyStatus { conditions });
            view.apply(object).unwrap();
        }
        let mut found = Findings::default();
        in_view(&view, &mut found);
        let said: Vec<_> =
            found.0.iter().map(|it| format!("{} {}", it.place, it.message)).collect();
        assert_eq!(
            said,
            [
                "nodes a, b lack kernel modules that the driver's pod could not load: irdma is absent",
                "node d waits for the driver of the NICs' vendor: version 2 is being loaded",
                "node f differs in how NICs are bound: it is set to bind NICs late",
                "node h has rails that are not as the operator set them: the node's file `rails` \
                 is not used: it is empty",
            ]
        );
    }
}
