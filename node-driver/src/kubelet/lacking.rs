//! Says on the Node what its interfaces lack after pods had them.

use crate::prepare::node::Node;
use crate::prepare::preparer::Preparer;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Says it until told to stop.
pub(super) async fn serve(node: Arc<Node>, preparer: Preparer, stop: CancellationToken) {
    loop {
        let texts = tokio::select! {
            () = stop.cancelled() => return,
            texts = node.effects.lacking.next() => texts,
        };
        preparer.say_on_node("InterfaceNotRestored", &texts).await;
    }
}
