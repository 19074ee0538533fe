//! Reports on the Node what people must know about its claims and interfaces.

use crate::claims::preparer::Preparer;
use crate::prepare::local::LocalPreparer;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Reports until told to stop.
pub(super) async fn serve(node: Arc<LocalPreparer>, preparer: Preparer, stop: CancellationToken) {
    loop {
        let notices = tokio::select! {
            () = stop.cancelled() => return,
            notices = node.effects.notices.next() => notices,
        };
        for (subject, texts) in notices {
            preparer.warn_on_node(subject.reason(), &texts).await;
        }
    }
}
