//! Endpoints for operators: `/healthz`, `/readyz`, `/metrics`.

use crate::progress::Progress;
use crate::readiness::Readiness;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Instant;

/// The routes. `/healthz` shows that the process responds, `/readyz` lists what it still waits for,
/// `/metrics` is the registry in OpenMetrics text.
pub fn router(readiness: Readiness, registry: Registry) -> Router {
    router_with_health(readiness, registry, get(|| async { "ok\n" }))
}

/// The same routes for a process with a main loop: `/healthz` fails if the loop makes no progress.
pub fn router_with_progress(
    readiness: Readiness,
    registry: Registry,
    progress: Progress,
) -> Router {
    router_with_health(readiness, registry, get(healthy).with_state(progress))
}

/// The same routes, with a handler for `/healthz` that tries what the program is for.
pub fn router_with_health(
    readiness: Readiness,
    registry: Registry,
    health: MethodRouter,
) -> Router {
    let registry = Arc::new([registry, build()]);
    Router::new()
        .route("/healthz", health)
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(metrics).with_state(registry))
}

async fn healthy(State(progress): State<Progress>) -> (StatusCode, String) {
    match progress.complaint(Instant::now()) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(complaint) => (StatusCode::SERVICE_UNAVAILABLE, format!("{complaint}\n")),
    }
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let waiting = readiness.waiting();
    if waiting.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}\n", waiting.join(", ")))
}

/// `dranet_build_info`, with the version.
fn build() -> Registry {
    let mut registry = Registry::with_prefix("dranet");
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "What runs", version);
    registry
}

async fn metrics(State(registries): State<Arc<[Registry; 2]>>) -> Response {
    let mut text = String::new();
    let [own, build] = &*registries;
    let encoded = encode_registry(&mut text, own)
        .and_then(|()| encode_registry(&mut text, build))
        .and_then(|()| encode_eof(&mut text));
    match encoded {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
