//! NICs that nodes do not publish, as their drivers say.

use cluster_model::node_devices::published;
use cluster_model::view::ClusterView;

/// The driver's condition of a NodeTopology (`publication/src/nic_conditions.rs`), and its
/// reason if nobody has to do anything.
const CONDITION: &str = "NICsWithheld";
const EXPECTED: &str = "Expected";

/// The most nodes of which it is said.
const NODES_MAX: usize = 16;

/// Sentences about nodes that do not publish NICs which pods could otherwise get, or no NIC at all.
pub(super) fn sentences(view: &ClusterView, nodes: &[&str]) -> Vec<String> {
    nodes.iter().filter_map(|node| sentence(view, node)).take(NODES_MAX).collect()
}

/// `gb300-0 does not publish eth1 (pci-0000-02-00-0): no-driver since …`.
fn sentence(view: &ClusterView, node: &str) -> Option<String> {
    let status = view.node_topology(node)?.status.as_ref()?;
    let condition = status.conditions.iter().find(|it| it.type_ == CONDITION)?;
    let has_nics = published(view, node).any(|(role, _)| role.is_nic());
    let is_told = condition.status == "True" && (condition.reason != EXPECTED || !has_nics);
    is_told.then(|| format!("{node} does not publish {}", condition.message))
}
