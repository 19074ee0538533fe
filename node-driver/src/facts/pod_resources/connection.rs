//! A connection to a gRPC server on a Unix socket. tonic's own `Channel` would also balance, buffer and
//! reconnect, and keep the code for it in the memory of every node, for one call when a pod starts.

use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::codegen::Service;

/// One HTTP/2 connection. It ends when it is dropped.
pub(super) struct Connection(SendRequest<Body>);

impl Connection {
    pub(super) async fn open(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        let opened = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(io::Error::other)?;
        tokio::spawn(async move {
            // The request in flight has the error as well.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "Connection to the kubelet ended");
            }
        });
        Ok(Self(sender))
    }

    /// HTTP/2 demands an authority; servers on sockets ignore it.
    pub(super) fn origin() -> Uri {
        Uri::from_static("http://localhost")
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
