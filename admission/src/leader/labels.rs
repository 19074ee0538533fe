//! The fabric of a node as a label of it, copied from its NodeTopology, so that no
//! driver needs the right to write nodes. A label that an operator has set stays.

use super::{Leader, LeaderError, writing};
use crate::fabric::label_value;
use cluster_model::names::label::{NODE_FABRIC, NODE_FABRIC_FROM};
use cluster_model::view::ClusterView;
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use serve::chain::Chain;
use std::time::Duration;

const NOT_FOUND: u16 = 404;

/// How often labels are compared, in memory.
const PERIOD: Duration = Duration::from_secs(2);
/// Nodes that are written at a time.
const TOGETHER: usize = 8;
/// Whom a label of ours was copied from.
const SOURCE: &str = "NodeTopology";

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

/// The nodes whose labels do not say what their NodeTopology does.
fn due(view: &ClusterView) -> Vec<(String, Value)> {
    let nodes = view.inventory().node_names().filter(|name| !view.is_remembered(name));
    let due = nodes.filter_map(|name| {
        let labels = &view.inventory().node(name)?.labels;
        let fabric = view.fabric(name);
        let label = labels.get(NODE_FABRIC).map(|value| &**value);
        let is_ours = labels.get(NODE_FABRIC_FROM).is_some_and(|from| **from == *SOURCE);
        Some((name.to_string(), labels_for(fabric, label, is_ours)?))
    });
    due.collect()
}

/// What changes in a node's labels.
fn labels_for(fabric: Option<&str>, label: Option<&str>, is_ours: bool) -> Option<Value> {
    let wanted = fabric.map(label_value);
    match (wanted, label) {
        (wanted, Some(label)) if wanted.as_deref() == Some(label) => None,
        (_, Some(_)) if !is_ours => None,
        (Some(wanted), _) => Some(json!({NODE_FABRIC: wanted, NODE_FABRIC_FROM: SOURCE})),
        (None, _) if is_ours => Some(json!({NODE_FABRIC: null, NODE_FABRIC_FROM: null})),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_follows_its_node_and_an_operators_stays() {
        let set = |to: &str| Some(json!({NODE_FABRIC: to, NODE_FABRIC_FROM: SOURCE}));
        let gone = Some(json!({NODE_FABRIC: null, NODE_FABRIC_FROM: null}));
        for (fabric, label, is_ours, expected) in [
            (None, None, false, None),
            (Some("a"), None, false, set("a")),
            (Some("a"), Some("a"), true, None),
            (Some("b"), Some("a"), true, set("b")),
            (Some("b"), Some("a"), false, None),
            (None, Some("a"), true, gone.clone()),
            (None, Some("a"), false, None),
            (Some("a"), None, true, set("a")),
            (None, None, true, gone),
        ] {
            assert_eq!(labels_for(fabric, label, is_ours), expected, "{fabric:?} {label:?}");
        }
    }
}
