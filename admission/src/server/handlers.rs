//! The routes of the webhook.

use super::advice::advise;
use super::decisions::{DecisionError, Decisions};
use super::metrics::{Metrics, Outcome};
use super::plans::Plans;
use super::recent::RecentPins;
use super::review::{self, Answer, Review};
use super::templates::Templates;
use super::told;
use crate::plan::Policy;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::core::response::StatusDetails;
use kube::core::{DynamicObject, Status};
use process::chain::Chain;
use serve::readiness::Readiness;
use serve::turns::Caller;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Largest body of a request, in bytes. kube-apiserver accepts requests of up to 3 MiB
/// (`MaxRequestBodyBytes`), and etcd stores objects of up to 1.5 MiB. Only reviews of updated
/// claims and templates also have the old object, which is stored.
pub(super) const BODY_MAX: usize = 5 << 20;

/// State of the handlers.
pub(super) struct App {
    pub(super) templates: Templates,
    pub(super) policy: Arc<Policy>,
    pub(super) plans: Plans,
    pub(super) recent: RecentPins,
    pub(super) decisions: Decisions,
    /// For hand-written claims. Pods do not wait for these decisions.
    pub(super) advice: Decisions,
    pub(super) readiness: Readiness,
    pub(super) metrics: Metrics,
}

type Body = AdmissionReview<DynamicObject>;
type Request = AdmissionRequest<DynamicObject>;

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new().route("/mutate", post(mutate)).route("/lint", post(lint)).with_state(app)
}

async fn mutate(State(app): State<Arc<App>>, caller: Caller, Json(review): Json<Body>) -> Response {
    let _timer = app.metrics.start();
    let request = match read(&app, review) {
        Ok(request) => Arc::new(request),
        Err(response) => return *response,
    };
    Json(respond(&app, &request, caller).await.into_review()).into_response()
}

async fn lint(State(app): State<Arc<App>>, caller: Caller, Json(review): Json<Body>) -> Response {
    let _timer = app.metrics.start();
    let request = match read(&app, review) {
        Ok(request) => Arc::new(request),
        Err(response) => return *response,
    };
    let (view, max_steps) = (app.templates.view.read(), app.policy.max_steps);
    let asked = Arc::clone(&request);
    let gone = CancellationToken::new();
    let _gone_with_the_request = gone.clone().drop_guard();
    let advised = app.advice.make(caller, move || advise(&asked, &view, max_steps, &gone)).await;
    // If there is no slot for advice, admit without any.
    let response = advised.unwrap_or_else(|_| AdmissionResponse::from(&*request));
    let advised = response.warnings.is_some();
    app.metrics.count(if advised { Outcome::Warned } else { Outcome::Unchanged });
    Json(response.into_review()).into_response()
}

/// Parses the request, if the webhook is ready to answer.
fn read(app: &App, review: Body) -> Result<Request, Box<Response>> {
    let waiting = app.readiness.waiting();
    if !waiting.is_empty() {
        app.metrics.count(Outcome::Unready);
        let text = format!("not ready: waiting for {}", waiting.join(", "));
        return Err(Box::new((StatusCode::SERVICE_UNAVAILABLE, text).into_response()));
    }
    review.try_into().map_err(|error| {
        app.metrics.count(Outcome::Malformed);
        Box::new(Json(AdmissionResponse::invalid(error).into_review()).into_response())
    })
}

/// Decides. Only requests that need a new plan wait for a slot; everything else takes a
/// fraction of a millisecond.
async fn decide(
    app: Arc<App>,
    request: Arc<Request>,
    caller: Caller,
) -> Result<Answer, DecisionError> {
    let view = app.templates.view.read();
    let waiting = match review::begin(&request, &view, &app.policy) {
        Review::Answered(answer) => return Ok(*answer),
        Review::NeedsPlan(waiting) => waiting,
    };
    let pending = &waiting.pending;
    let plan = match app.plans.known(&pending.intent, &pending.placement, &view) {
        Some(plan) => plan,
        None => app.plans.make_once(pending, &view, &app.policy, (caller, &app.decisions)).await?,
    };
    let is_pinned = plan.as_ref().is_ok_and(|plan| !plan.pins.is_empty());
    if !is_pinned {
        return Ok(waiting.answer(plan, &view, &app.policy, &app.recent));
    }
    // The choice examines what is free on every node.
    let own = Arc::clone(&app);
    app.decisions.make(caller, move || waiting.answer(plan, &view, &own.policy, &own.recent)).await
}

async fn respond(app: &Arc<App>, request: &Arc<Request>, caller: Caller) -> AdmissionResponse {
    // A separate task, so that a panic ends this request but not its connection.
    let decided = tokio::spawn(decide(Arc::clone(app), Arc::clone(request), caller)).await;
    let decided = decided.unwrap_or(Err(DecisionError::Failed));
    let Answer { response, template: needed, denied_for } = match decided {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "Decision failed");
            app.metrics.count(Outcome::Failed);
            let is_passing = matches!(error, DecisionError::Busy { .. });
            return failed(AdmissionResponse::from(&**request), &error, is_passing);
        }
    };
    if let Some(reason) = denied_for {
        app.metrics.count_denial(reason);
        told::denied(request, reason, &response.result.message);
    }
    let Some(needed) = needed.filter(|_| response.allowed) else {
        app.metrics.count(Outcome::new(&response));
        return response;
    };
    if let Err(error) = app.templates.check(&needed.key, needed.template.as_ref()) {
        app.metrics.count(Outcome::Failed);
        return failed(AdmissionResponse::from(&**request), &error, false);
    }
    app.metrics.count(Outcome::new(&response));
    if !request.dry_run {
        app.templates.expect(&needed.key, needed.template.as_ref());
        told::patched(request, &needed.key.name);
        if let Some(join) = needed.join {
            app.metrics.count_plan(join);
        }
    }
    response
}

/// A denial, marked for retry by clients if a retry may help.
fn failed(
    response: AdmissionResponse,
    error: &(dyn std::error::Error + 'static),
    is_passing: bool,
) -> AdmissionResponse {
    let mut response = response.deny(Chain(error));
    if is_passing {
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 1,
        };
        response.result = Status {
            code: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            reason: "ServiceUnavailable".to_owned(),
            details: Some(details),
            ..response.result
        };
    }
    response
}
