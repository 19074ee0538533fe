//! Azure's instance metadata service, as far as virtual machines use it: a real HTTP server on
//! loopback that requires the same header and version as the real one.
//!
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use tokio::{net::TcpListener, task::JoinHandle};

/// A running service; it stops when dropped.
#[derive(Debug)]
pub struct Imds {
    address: SocketAddr,
    compute: Arc<Mutex<Value>>,
    server: JoinHandle<()>,
}

impl Imds {
    /// Starts the service for a machine of this size in this placement group.
    pub async fn start(vm_size: &str, placement_group: &str) -> anyhow::Result<Self> {
        let compute = Arc::new(Mutex::new(json!({
            "vmSize": vm_size,
            "placementGroupId": placement_group,
            "interconnectGroupId": "",
            "interconnectSubgroupId": "",
        })));
        let router = Router::new()
            .route("/metadata/instance/compute", get(answer))
            .with_state(Arc::clone(&compute));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // Ends only when aborted below.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, compute, server })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Moves the machine to another placement group.
    pub fn set_placement_group(&self, id: &str) {
        let mut compute = self.compute.lock().unwrap_or_else(PoisonError::into_inner);
        compute["placementGroupId"] = id.into();
    }
}

impl Drop for Imds {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(
    State(compute): State<Arc<Mutex<Value>>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if headers.get("metadata").is_none_or(|value| value != "true") {
        let text = json!({"error": "Bad request. Required metadata header not specified"});
        return (StatusCode::BAD_REQUEST, Json(text)).into_response();
    }
    if !query.contains_key("api-version") {
        let text = json!({"error": "Bad request. api-version was not specified in the request"});
        return (StatusCode::BAD_REQUEST, Json(text)).into_response();
    }
    let compute = compute.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Json(compute).into_response()
}
