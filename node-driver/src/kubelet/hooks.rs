//! The socket on which attach hooks hand over the namespaces of their pods.

use crate::claims::preparer::Preparer;
use crate::kubelet::PluginError;
use crate::kubelet::socket::PublishedSocket;
use crate::prepare::local::LocalPreparer;
use crate::prepare::metrics::Method;
use crate::publish::claim_status::Progress;
use process::chain::Chain;
use std::sync::Arc;
use std::time::Instant;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

/// Answers hooks one after the other until told to stop.
pub(super) async fn serve(
    socket: PublishedSocket,
    node: Arc<LocalPreparer>,
    preparer: Preparer,
    stop: CancellationToken,
) -> Result<(), PluginError> {
    let (mut incoming, _removal) = socket.into_incoming();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            stream = incoming.next() => stream,
        };
        let Some(Ok(stream)) = stream else { continue };
        let node = Arc::clone(&node);
        let answer = tokio::task::spawn_blocking(move || {
            let begin = Instant::now();
            let answered = stream.into_std().map(|stream| {
                // The peer is this driver's hook, which writes at once.
                stream.set_nonblocking(false).map(|()| node.answer_hook(&stream))
            });
            let answered = answered.flatten();
            let is_done = matches!(answered, Ok(Ok(_)));
            node.metrics.observe(Method::Attach, is_done, begin.elapsed());
            match answered {
                Ok(Ok(attached)) => return attached,
                Ok(Err(error)) => {
                    tracing::warn!(error = %Chain(&error), "Failed to answer an attach hook");
                }
                Err(error) => tracing::warn!(%error, "Failed to answer an attach hook"),
            }
            None
        });
        if let Some(plan) = answer.await? {
            preparer.publish_status(plan, Progress::Attached);
        }
    }
}
