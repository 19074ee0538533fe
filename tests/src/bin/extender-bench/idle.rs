//! An extender that does nothing: it reads requests and returns no scores.

use std::net::SocketAddr;

use axum::{Json, Router, body::Bytes, extract::DefaultBodyLimit, routing::post};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// A running extender; it stops when dropped.
#[derive(Debug)]
pub(crate) struct Idle {
    /// Its address.
    pub(crate) address: SocketAddr,
    server: JoinHandle<()>,
}

impl Idle {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let router =
            Router::new().route("/prioritize", post(answer)).layer(DefaultBodyLimit::disable());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // Ends only by the abort below.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, server })
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(_body: Bytes) -> Json<Value> {
    Json(json!([]))
}
