//! Waits for an API server that is away when the driver starts, as it is where
//! the control plane's own node boots. Meanwhile the plugin beside serves the
//! kubelet.

use super::steady::pause_after;
use crate::facts::node::{NodeError, NodeIdentity};
use kube::Client;
use process::chain::Chain;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The Node, as soon as the server tells of it; none when told to stop before.
/// That the cluster has no such node is a wrong flag and ends the driver.
pub(super) async fn node(
    client: &Client,
    name: &str,
    stop: &CancellationToken,
) -> Result<Option<NodeIdentity>, NodeError> {
    let mut failures = 0;
    let asked = async {
        loop {
            let cause = match timeout(PATIENCE, NodeIdentity::get(client, name)).await {
                Ok(Err(error @ NodeError::Get { .. })) => Chain(&error).to_string(),
                Ok(answer) => return answer.map(Some),
                Err(_) => format!("no answer to `get node {name}` within {PATIENCE:?}"),
            };
            failures += 1;
            let pause = pause_after(failures);
            tracing::warn!(
                error = cause,
                again_in = ?pause,
                "API server not reached; nothing is published yet, known claims are prepared"
            );
            sleep(pause).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => Ok(None),
        node = asked => node,
    }
}
