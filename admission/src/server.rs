//! The webhook as a server: watches, `POST /mutate`, the one create of a new
//! template.

mod args;
mod metrics;
mod plans;
mod review;
mod templates;

pub use args::{Args, PolicyArgs};
pub use plans::Plans;
pub use review::{Answer, answer};

use crate::plan::Policy;
use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use cluster_model::watch::{self, SharedView};
use kube::Client;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use metrics::{Metrics, Outcome};
use prometheus_client::registry::Registry;
use serve::chain::Chain;
use serve::http::Bound;
use serve::readiness::Readiness;
use std::sync::Arc;
use templates::ensure;

/// What a request is answered from.
struct App {
    view: SharedView,
    client: Client,
    policy: Policy,
    plans: Plans,
    readiness: Readiness,
    metrics: Metrics,
}

/// Runs the webhook until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { server, operations, kube, log, policy } = args;
    serve::logging::init(&log)?;
    let stop = serve::process::stop_on_signal().context("failed to listen for signals")?;
    let client = serve::client::connect(&kube).await?;
    let webhook = Bound::from_args(&server).await?;
    let operations = Bound::plain(operations.operations_listen)?;
    tracing::info!(webhook = %webhook.address(), operations = %operations.address(), "Listening");

    let mut registry = Registry::with_prefix("dranet_admission");
    let readiness = Readiness::default();
    let app = Arc::new(App {
        view: SharedView::default(),
        client: client.clone(),
        policy: policy.into(),
        plans: Plans::default(),
        readiness: readiness.clone(),
        metrics: Metrics::register(&mut registry),
    });
    let watches = watch::follow(client, app.view.clone(), |kind| readiness.wait_for(kind));
    let operations_router = serve::operations::router(readiness.clone(), registry);
    tokio::select! {
        () = watches => anyhow::bail!("every watch ended"),
        result = webhook.serve(router(app), stop.clone()) => result?,
        result = operations.serve(operations_router, stop) => result?,
    }
    Ok(())
}

fn router(app: Arc<App>) -> Router {
    Router::new().route("/mutate", post(mutate)).with_state(app)
}

async fn mutate(
    State(app): State<Arc<App>>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Response {
    let _timer = app.metrics.start();
    let waiting = app.readiness.waiting();
    if !waiting.is_empty() {
        app.metrics.count(Outcome::Unready);
        let text = format!("not ready: waiting for {}", waiting.join(", "));
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    let request: AdmissionRequest<DynamicObject> = match review.try_into() {
        Ok(request) => request,
        Err(error) => {
            app.metrics.count(Outcome::Malformed);
            return Json(AdmissionResponse::invalid(error).into_review()).into_response();
        }
    };
    Json(respond(&app, &request).await.into_review()).into_response()
}

async fn respond(app: &App, request: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let Answer { response, template } = {
        let view = app.view.read();
        answer(request, &view, &app.policy, &app.plans)
    };
    app.metrics.count(Outcome::of(&response));
    let (Some(template), false) = (template, request.dry_run) else { return response };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    match ensure(&app.client, &app.view, namespace, template).await {
        Ok(created) => {
            app.metrics.count_template(created);
            response
        }
        Err(error) => {
            let error = Chain(&error).to_string();
            tracing::error!(namespace, error, "Template not created");
            app.metrics.count(Outcome::Failed);
            AdmissionResponse::from(request).deny(error)
        }
    }
}
