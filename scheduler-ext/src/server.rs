//! The extender as a server: watches, and `POST /prioritize`.

use crate::args::Args;
use crate::metrics::Metrics;
use crate::score::prioritize;
use crate::wire::{ExtenderArgs, HostPriority};
use anyhow::Context as _;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use cluster_model::watch::{self, SharedView};
use prometheus_client::registry::Registry;
use serve::http::Bound;
use serve::readiness::Readiness;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a request: a pod of 1.5 MiB (etcd's limit), written out as JSON, and
/// five thousand names.
const BODY_MAX: usize = 8 << 20;

#[derive(Debug)]
struct App {
    view: SharedView,
    readiness: Readiness,
    metrics: Metrics,
}

/// Runs the extender until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { server, operations, kube, log } = args;
    process::logging::init(&log)?;
    let stop = process::run::stop_on_signal().context("failed to listen for signals")?;
    let client = process::client::connect(&kube).await?;
    let extender = Bound::from_args(&server).await?;
    let operations = Bound::plain(operations.operations_listen)?;
    tracing::info!(extender = %extender.address(), operations = %operations.address(), "Listening");

    let mut registry = Registry::with_prefix("dranet_scheduler_ext");
    let readiness = Readiness::default();
    let app = Arc::new(App {
        view: SharedView::default(),
        readiness: readiness.clone(),
        metrics: Metrics::register(&mut registry),
    });
    let watches = watch::follow(client, app.view.clone(), |kind| readiness.wait_for(kind));
    let operations_router = serve::operations::router(readiness.clone(), registry);
    let router = Router::new()
        .route("/prioritize", post(answer))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(app);
    tokio::select! {
        () = watches => anyhow::bail!("every watch ended"),
        result = extender.serve(router, stop.clone()) => result?,
        result = operations.serve(operations_router, stop) => result?,
    }
    Ok(())
}

async fn answer(State(app): State<Arc<App>>, Json(args): Json<ExtenderArgs>) -> Response {
    let start = Instant::now();
    // Without the names (`nodeCacheCapable: false`) an answer would be wrong:
    // kube-scheduler would go on with nodes that it believes empty.
    let Some(nodes) = args.node_names else {
        let text = "no NodeNames: set nodeCacheCapable: true for this extender";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    if !app.readiness.waiting().is_empty() {
        return Json(Vec::<HostPriority>::new()).into_response();
    }
    let scored = prioritize(&args.pod, &nodes, &app.view.read());
    for (_, basis) in &scored {
        app.metrics.count(*basis);
    }
    app.metrics.observe(start.elapsed());
    let priorities: Vec<_> = scored.into_iter().map(|(priority, _)| priority).collect();
    tracing::debug!(pod = ?args.pod.metadata.name, ?priorities, "Prioritized");
    Json(priorities).into_response()
}
