//! Tries again what failed, from time to time: claims that could not be undone, files that are
//! missing or have old kernel names, and the installation of the hook. Looks for claims that nobody
//! will unprepare.

use crate::claims::preparer::Preparer;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use node_files::install;
use process::chain::Chain;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two attempts.
const PERIOD: Duration = Duration::from_secs(30);
/// Attempts between two searches for abandoned claims, which ask the API server.
const TURNS_PER_SEARCH: u32 = 20;

/// Repairs what an earlier run left, and installs the hook. What fails for one claim, or because
/// the disk is full, is reported and tried again later.
pub(super) fn repair(node: &LocalPreparer) -> Result<(), PrepareError> {
    node.reconcile()?;
    let hook = node.effects.paths.hook();
    let installed = node.alone(|| install::install(&hook))?;
    node.unless_full("the hook", installed)
}

/// Repairs until told to stop.
pub(super) async fn serve(preparer: Preparer, stop: CancellationToken) {
    for turn in 1_u32.. {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        report(preparer.on_node(repair).await);
        if turn.is_multiple_of(TURNS_PER_SEARCH) {
            report(preparer.undo_abandoned().await);
        }
    }
}

fn report(done: Result<(), PrepareError>) {
    if let Err(error) = done {
        tracing::warn!(error = %Chain(&error), "Failed to repair");
    }
}
