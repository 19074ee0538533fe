//! The Node that owns everything that this driver publishes, and its labels.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use publication::node::NodeIdentity;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The Node could not be found.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The server did not answer, or refused.
    #[error("failed to get node `{name}`")]
    Get {
        /// The node's name.
        name: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// There is no such node.
    #[error("the cluster has no node `{name}`; name this machine's node by --node-name")]
    Absent {
        /// The node's name.
        name: String,
    },
}

/// Gets the Node's metadata from the server.
pub async fn get_node(client: &Client, name: &str) -> Result<NodeIdentity, NodeError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes
        .get_metadata_opt(name)
        .await
        .map_err(|source| NodeError::Get { name: name.to_owned(), source: Box::new(source) })?;
    let metadata = node.map(|node| node.metadata).unwrap_or_default();
    let uid = metadata.uid.ok_or_else(|| NodeError::Absent { name: name.to_owned() })?;
    Ok(NodeIdentity { name: name.to_owned(), uid, labels: metadata.labels.unwrap_or_default() })
}

/// Labels that a node must have, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLabels(BTreeMap<String, String>);

impl NodeLabels {
    /// Whether a node with these labels has them.
    pub(crate) fn select(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

impl FromStr for NodeLabels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let labels: Option<BTreeMap<_, _>> = text
            .split(',')
            .map(|part| {
                let (key, value) = part.split_once('=').filter(|(key, _)| !key.is_empty())?;
                Some((key.to_owned(), value.to_owned()))
            })
            .collect();
        labels.map(Self).ok_or_else(|| "must be KEY=VALUE, separated by commas".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_must_have_all_labels() {
        let labels: NodeLabels = "os=ubuntu,version=22.04".parse().unwrap();
        let node = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(labels.select(&node(&[("os", "ubuntu"), ("version", "22.04"), ("a", "b")])));
        assert!(!labels.select(&node(&[("os", "ubuntu"), ("version", "24.04")])));
        assert!(!labels.select(&node(&[("os", "ubuntu")])));
        for wrong in ["", "os", "=ubuntu", "os=ubuntu,"] {
            assert!(wrong.parse::<NodeLabels>().is_err(), "{wrong}");
        }
    }
}
