//! Updates claim statuses for interfaces that are already in pods: at start, because
//! hooks work while no driver runs, and when a DHCP server gives another address.

use crate::claims::preparer::Preparer;
use crate::prepare::local::LocalPreparer;
use crate::publish::claim_status::Progress;
use process::chain::Chain;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Updates statuses until told to stop.
pub(super) async fn serve(node: Arc<LocalPreparer>, preparer: Preparer, stop: CancellationToken) {
    let mut uids = node.namespaces().claims();
    loop {
        write_statuses(&preparer, uids).await;
        uids = tokio::select! {
            () = stop.cancelled() => return,
            uids = node.effects.leases.changed() => uids,
        };
    }
}

async fn write_statuses(preparer: &Preparer, uids: BTreeSet<String>) {
    match preparer.on_node(move |node| node.attached_of(uids)).await {
        Ok(plans) => {
            for plan in plans {
                preparer.publish_status(plan, Progress::Attached);
            }
        }
        Err(error) => tracing::warn!(error = %Chain(&error), "Failed to write claim statuses"),
    }
}
