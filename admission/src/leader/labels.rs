//! The fabric of a node as a label of it, copied from its NodeTopology, so that no
//! driver needs the right to write nodes; where that knows none, the NVLink domain of
//! the node's GPUs. A label that an operator has set stays.

use super::{Leader, LeaderError, writing};
use crate::fabric::label_value;
use cluster_model::names::label::{NODE_FABRIC, NODE_FABRIC_FROM, NVLINK_CLIQUE};
use cluster_model::view::ClusterView;
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use process::chain::Chain;
use serde_json::{Value, json};
use std::time::Duration;

const NOT_FOUND: u16 = 404;

/// How often labels are compared, in memory.
const PERIOD: Duration = Duration::from_secs(2);
/// Nodes that are written at a time.
const TOGETHER: usize = 8;

/// What the label was copied from, by which ours are known from an operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// What the driver publishes.
    NodeTopology,
    /// What NVIDIA's GPU feature discovery says of the node.
    NvlinkClique,
}

impl Source {
    /// As a label's value.
    const fn name(self) -> &'static str {
        match self {
            Self::NodeTopology => "NodeTopology",
            Self::NvlinkClique => "gpu.clique",
        }
    }
}

impl Leader {
    pub(super) async fn label_nodes(&self) {
        loop {
            let due = due(&self.templates.view.read());
            let write = async |(node, labels): (String, Value)| {
                if let Err(error) = self.label(&node, &labels).await {
                    tracing::warn!(error = %Chain(&error), "Node not labelled; trying again");
                }
            };
            stream::iter(due).for_each_concurrent(TOGETHER, write).await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn label(&self, node: &str, labels: &Value) -> Result<(), LeaderError> {
        let nodes: Api<Node> = Api::all(self.templates.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        match nodes.patch_metadata(node, &PatchParams::default(), &patch).await {
            Ok(_) => {
                tracing::info!(node, %labels, "Node labelled");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(()),
            Err(error) => Err(writing("Node", node)(error)),
        }
    }
}

/// The nodes whose labels do not say what is known of their fabric.
fn due(view: &ClusterView) -> Vec<(String, Value)> {
    let nodes = view.inventory().node_names().filter(|name| !view.is_remembered(name));
    let due = nodes.filter_map(|name| {
        let labels = &view.inventory().node(name)?.labels;
        let label = |key: &str| labels.get(key).map(|value| &**value);
        let wanted = wanted(view.fabric(name), label(NVLINK_CLIQUE));
        let from = label(NODE_FABRIC_FROM);
        Some((name.to_string(), labels_for(wanted, label(NODE_FABRIC), from)?))
    });
    due.collect()
}

/// The fabric that is known, as a label's value, and who says so.
fn wanted(published: Option<&str>, clique: Option<&str>) -> Option<(String, Source)> {
    let published = published.map(|fabric| (label_value(fabric), Source::NodeTopology));
    let clique = clique.filter(|clique| !clique.is_empty());
    published.or_else(|| clique.map(|clique| (label_value(clique), Source::NvlinkClique)))
}

/// What changes in a node's labels.
fn labels_for(
    wanted: Option<(String, Source)>,
    label: Option<&str>,
    from: Option<&str>,
) -> Option<Value> {
    let is_ours = [Source::NodeTopology, Source::NvlinkClique]
        .iter()
        .any(|source| from == Some(source.name()));
    match (wanted, label) {
        (Some((wanted, _)), Some(label)) if wanted == label => None,
        (_, Some(_)) if !is_ours => None,
        (Some((wanted, source)), _) => {
            Some(json!({NODE_FABRIC: wanted, NODE_FABRIC_FROM: source.name()}))
        }
        (None, _) if is_ours => Some(json!({NODE_FABRIC: null, NODE_FABRIC_FROM: null})),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_follows_its_node_and_an_operators_stays() {
        let set = |to: &str, from: &str| Some(json!({NODE_FABRIC: to, NODE_FABRIC_FROM: from}));
        let gone = Some(json!({NODE_FABRIC: null, NODE_FABRIC_FROM: null}));
        let topology = Some("NodeTopology");
        for (fabric, clique, label, from, expected) in [
            (None, None, None, None, None),
            (Some("a"), None, None, None, set("a", "NodeTopology")),
            (Some("a"), None, Some("a"), topology, None),
            (Some("b"), None, Some("a"), topology, set("b", "NodeTopology")),
            (Some("b"), None, Some("a"), None, None),
            (Some("b"), None, Some("a"), Some("an operator"), None),
            (None, None, Some("a"), topology, gone.clone()),
            (None, None, Some("a"), None, None),
            (Some("a"), None, None, topology, set("a", "NodeTopology")),
            (None, None, None, topology, gone),
            // The NVLink domain where nothing else is known.
            (None, Some("c.1"), None, None, set("c.1", "gpu.clique")),
            (None, Some(""), None, None, None),
            (Some("a"), Some("c.1"), None, None, set("a", "NodeTopology")),
            (Some("a"), Some("c.1"), Some("c.1"), Some("gpu.clique"), set("a", "NodeTopology")),
            (None, Some("c.1"), Some("c.1"), Some("gpu.clique"), None),
            (None, Some("c.1"), Some("mine"), None, None),
        ] {
            let change = labels_for(wanted(fabric, clique), label, from);
            assert_eq!(change, expected, "{fabric:?} {clique:?} {label:?} {from:?}");
        }
    }
}
