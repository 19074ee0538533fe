//! Waits for an API server that is unreachable when the driver starts, for example while
//! the control plane's own node boots. Meanwhile the kubelet plugin already serves the
//! kubelet.

use super::steady::pause_after;
use crate::facts::node::{NodeError, get_node};
use kube::Client;
use process::chain::Chain;
use publication::node::NodeIdentity;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Gets the Node, retrying until the server answers; `None` if told to stop before. A
/// node that does not exist is a wrong flag and ends the driver.
pub(super) async fn node(
    client: &Client,
    name: &str,
    stop: &CancellationToken,
) -> Result<Option<NodeIdentity>, NodeError> {
    let mut failures = 0;
    let asked = async {
        loop {
            let cause = match timeout(PATIENCE, get_node(client, name)).await {
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
