//! The Node that owns everything that this driver publishes.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client};

/// Name and UID of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Its name.
    pub name: String,
    /// Its UID; a node that was deleted and joined again has another one.
    pub uid: String,
}

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

impl NodeIdentity {
    /// Gets the Node's metadata from the server.
    pub async fn get(client: &Client, name: &str) -> Result<Self, NodeError> {
        let nodes: Api<Node> = Api::all(client.clone());
        let node = nodes
            .get_metadata_opt(name)
            .await
            .map_err(|source| NodeError::Get { name: name.to_owned(), source: Box::new(source) })?;
        let uid = node.and_then(|node| node.metadata.uid);
        let uid = uid.ok_or_else(|| NodeError::Absent { name: name.to_owned() })?;
        Ok(Self { name: name.to_owned(), uid })
    }

    /// An owner reference to the Node, so that an object is deleted with it.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}
