//! Reports on the Node what could not be restored on its interfaces after pods had them.

use crate::prepare::node::Node;
use crate::prepare::preparer::Preparer;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Reports until told to stop.
pub(super) async fn serve(node: Arc<Node>, preparer: Preparer, stop: CancellationToken) {
    loop {
        let texts = tokio::select! {
            () = stop.cancelled() => return,
            texts = node.effects.lacking.next() => texts,
        };
        preparer.warn_on_node("InterfaceNotRestored", &texts).await;
    }
}
