//! Checks the versions of the node's kernel, kubelet and container runtime, once.

use crate::decide::versions;
use crate::publish::events::Notice;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use process::chain::Chain;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the Node.
const PATIENCE: Duration = Duration::from_secs(15);

/// Events about what is too old on the Node; none if the server does not say.
pub(super) async fn notices(client: &Client, name: &str) -> Vec<Notice> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = match timeout(PATIENCE, nodes.get(name)).await {
        Ok(Ok(node)) => node,
        Ok(Err(error)) => {
            tracing::warn!(error = %Chain(&error), "Versions of the node not checked");
            return Vec::new();
        }
        Err(_) => return Vec::new(),
    };
    let info = node.status.and_then(|status| status.node_info).unwrap_or_default();
    versions::too_old(&info)
        .iter()
        .map(|text| {
            tracing::warn!(text, "The node has something that is too old");
            Notice::warning("NodeTooOld", text)
        })
        .collect()
}
