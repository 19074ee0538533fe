//! The Node that owns everything that this driver publishes.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use publication::node::NodeIdentity;

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
