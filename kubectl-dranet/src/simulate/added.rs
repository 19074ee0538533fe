//! Nodes to add.

use crate::args::AddedNodes;
use crate::new_node::NewNode;
use cluster_model::room::Nodes;
use cluster_model::view::ClusterView;
use serde_json::Value;

/// Adds nodes named `added-1` and so on after `before`; returns how many were added. `kept` has
/// the nodes, slices and graphs of the cluster.
pub(super) fn add(
    view: &mut ClusterView,
    facts: &mut Nodes,
    kept: &[Value],
    (asked, before): (&AddedNodes, usize),
) -> anyhow::Result<usize> {
    for number in before..before + asked.number {
        let name = format!("added-{}", number + 1);
        anyhow::ensure!(
            view.inventory().node(&name).is_none(),
            "cannot add node `{name}`: a node with this name exists"
        );
        let new = NewNode::of_type(&asked.shape, &name, (view, kept))?;
        facts.apply_of_file(&new.node);
        new.put_into(view)?;
    }
    Ok(asked.number)
}
