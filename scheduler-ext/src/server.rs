//! The extender's server: watches, and `POST /prioritize`.

use crate::answer::Answer;
use crate::args::{self, Args};
use crate::debug::{self, Access, ExplainQuery};
use crate::events::{self, Events};
use crate::expected::Expected;
use crate::gauges::Gauges;
use crate::in_flight::Settled;
use crate::learn::{BoundPod, NODES_PER_STEP};
use crate::metrics::Metrics;
use crate::pages::NodePage;
use crate::prioritize::Ranker;
use crate::wire::{ExtenderArgs, HostPriority, WireError};
use anyhow::Context as _;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cluster_model::view::{ClusterView, ObjectKey};
use cluster_model::watch::{self, SharedView};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use process::background::Background;
use prometheus_client::registry::Registry;
use serve::http::{Bound, Limits};
use serve::readiness::Readiness;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// The maximum size of a request in bytes: a pod of 1.5 MiB (etcd's limit) as JSON, and the names
/// of all nodes of the largest clusters.
const BODY_MAX: usize = 16 << 20;
/// Longest time of an answer to a probe of `/healthz`; kubelet waits one second.
const ALIVE: Duration = Duration::from_millis(900);

/// The interval between scans for outcomes of pods and for free capacity.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct App {
    view: SharedView,
    readiness: Readiness,
    metrics: Metrics,
    ranker: Ranker,
    /// The time limit of an answer.
    limit: Duration,
    /// Pods that got devices, for their events.
    bound: UnboundedSender<BoundPod>,
    /// Access to /debug.
    access: Access,
}

/// Runs the extender until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { server, timeout, mix, watch_pods, drivers, operations, kube, log, .. } = args;
    let token_file = args.operations_token_file;
    process::logging::init(&log)?;
    cluster_model::drivers::use_file(drivers.as_deref())?;
    args::check(&server)?;
    let stop = process::run::stop_on_signal().context("failed to listen for signals")?;
    let background = Background::start().context("failed to start background threads")?;
    let client = process::client::connect(&kube).await?;
    let access = match token_file {
        _ if server.listen.ip().is_loopback() => Access::Loopback,
        Some(file) => Access::Token(file),
        None => Access::Closed,
    };
    let extender = Bound::from_args(&server, Limits::requests(BODY_MAX)).await?;
    let operations = Bound::plain(operations.operations_listen)?;
    tracing::info!(extender = %extender.address(), operations = %operations.address(), "Listening");

    background.spawn(process::memory::keep_small());
    let mut registry = Registry::with_prefix("dranet_scheduler_ext");
    let readiness = Readiness::default();
    let (bound, receiver) = unbounded_channel();
    let events = Events::new(client.clone());
    let app = Arc::new(App {
        view: SharedView::default(),
        readiness: readiness.clone(),
        metrics: Metrics::register(&mut registry),
        ranker: Ranker::new(Expected::new(mix.unwrap_or_default())),
        limit: timeout / 2,
        bound,
        access,
    });
    let watches = follow(client, &app, watch_pods);
    let (view, ranked) = (app.view.clone(), app.clone());
    let expected = Box::new(move || ranked.ranker.expected());
    registry.register_collector(Box::new(Gauges { view, expected }));
    let health = get(alive).with_state(app.clone());
    let operations_router =
        serve::operations::router_with_health(readiness.clone(), registry, health);
    let router = Router::new()
        .route("/prioritize", post(prioritize))
        .route("/debug/explain", get(explain))
        .route("/debug/nodes/{name}", get(node))
        .with_state(app.clone());
    tokio::select! {
        () = watches => anyhow::bail!("every watch ended"),
        ended = background.spawn(look(app)) => ended.context("the cluster scan ended")?,
        () = tell(receiver, events) => {}
        result = extender.serve(router, stop.clone()) => result?,
        result = operations.serve(operations_router, stop) => result?,
    }
    Ok(())
}

/// Follows the cluster, and the pods with GPUs of device plugins if asked for. Ends if a watch ends.
fn follow(client: Client, app: &App, with_pods: bool) -> impl Future<Output = ()> + use<> {
    let (view, readiness) = (app.view.clone(), app.readiness.clone());
    let listed = with_pods.then(|| readiness.wait_for("pods"));
    let (of_pods, pods_view) = (client.clone(), view.clone());
    let cluster = watch::follow(client, view, move |kind| readiness.wait_for(kind));
    async move {
        let pods = async {
            match listed {
                Some(listed) => watch::follow_plugin_pods(of_pods, pods_view, listed).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = cluster => {}
            () = pods => {}
        }
    }
}

async fn prioritize(State(app): State<Arc<App>>, body: Bytes) -> Response {
    let start = Instant::now();
    let args = match ExtenderArgs::parse(&body) {
        Ok(args) => args,
        Err(error) => return refused(&error),
    };
    // Most pods of a cluster have no claim, and must not wait.
    let has_claims = args.pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.is_some());
    if !has_claims || !app.readiness.waiting().is_empty() {
        app.metrics.answered(&Answer::default(), start.elapsed());
        return scores(&Answer::default());
    }
    let names = match args.node_names() {
        Ok(names) => names,
        Err(error) => return refused(&error),
    };
    let deadline = start + app.limit;
    let gone = CancellationToken::new();
    // Also dropped at the deadline, and if the scheduler closes the connection.
    let _gone_with_the_request = gone.clone().drop_guard();
    let task = tokio::task::spawn_blocking({
        let (app, pod) = (app.clone(), args.pod);
        move || {
            let answer = app.answer(&pod, &names, (start, deadline), &gone);
            app.metrics.answered(&answer, start.elapsed());
            let key = ObjectKey::new(&pod.metadata);
            tracing::debug!(pod = %key, scores = %answer, "Prioritized");
            if !answer.nodes.is_empty() {
                app.ranker.keep(key, answer.clone());
            }
            answer
        }
    });
    let reason = match tokio::time::timeout_at(deadline.into(), task).await {
        Ok(Ok(answer)) => return scores(&answer),
        Ok(Err(error)) => error.to_string(),
        Err(late) => late.to_string(),
    };
    // Answer neutrally, but in time. The computed forecasts are cached for the next request.
    tracing::warn!(reason, "Answered neutrally");
    app.metrics.late();
    scores(&Answer::default())
}

/// Answers a request without nodes in the way in which requests with nodes are answered. kubelet
/// restarts an extender that hangs: until then the scheduler waits for it with each pod.
async fn alive(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    let (start, pod) = (Instant::now(), Pod::default());
    let task = tokio::task::spawn_blocking(move || {
        app.answer(&pod, &[], (start, start + ALIVE), &CancellationToken::new());
    });
    match tokio::time::timeout(ALIVE, task).await {
        Ok(Ok(())) => (StatusCode::OK, "ok\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "no answer to a request without nodes\n"),
    }
}

async fn explain(
    State(app): State<Arc<App>>,
    Query(query): Query<ExplainQuery>,
    headers: HeaderMap,
) -> Response {
    match app.access.check(&headers).await {
        Ok(()) => debug::explain(&query, &app.ranker),
        Err(refused) => refused.into_response(),
    }
}

async fn node(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = app.access.check(&headers).await {
        return refused.into_response();
    }
    let page = tokio::task::spawn_blocking(move || match app.node_page(&name) {
        Some(page) => Json(page).into_response(),
        None => debug::no_node(&name),
    });
    page.await.unwrap_or_else(|error| {
        (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
    })
}

fn refused(error: &WireError) -> Response {
    tracing::warn!(%error, "Request refused");
    (StatusCode::BAD_REQUEST, error.to_string()).into_response()
}

fn scores(answer: &Answer) -> Response {
    let scored = answer.nodes.iter();
    let priorities: Vec<_> =
        scored.map(|scored| HostPriority { host: &scored.node, score: scored.score }).collect();
    Json(priorities).into_response()
}

/// Scans the outcomes of pods and the free capacity, at intervals.
async fn look(app: Arc<App>) {
    let mut every = tokio::time::interval(LOOK);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if !app.readiness.waiting().is_empty() {
            continue;
        }
        let app = app.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let begun = SystemTime::now();
            app.settle(&app.view.read(), Instant::now());
            let mut learning = app.ranker.learning();
            // The view is released between two steps.
            while app.ranker.look(&mut learning, &app.view.read()) {}
            let bound = app.ranker.expect(learning);
            app.metrics.scanned(begun);
            for pod in bound {
                app.metrics.bound(&pod);
                // The receiver lives as long as the process.
                let _ended = app.bound.send(pod);
            }
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "Reading the cluster failed");
        }
    }
}

/// Writes the events of pods that were bound.
async fn tell(mut bound: UnboundedReceiver<BoundPod>, events: Events) {
    while let Some(pod) = bound.recv().await {
        events.misaligned(&pod).await;
    }
}

impl App {
    /// Answers until the deadline, or until the request is gone.
    fn answer(
        &self,
        pod: &Pod,
        nodes: &[String],
        (now, deadline): (Instant, Instant),
        gone: &CancellationToken,
    ) -> Arc<Answer> {
        let view = self.view.read();
        self.settle(&view, now);
        // Half of the time is for forecasts; the steps after them take far less than the rest.
        let end = now + deadline.saturating_duration_since(now) / 2;
        self.ranker
            .prioritize(pod, nodes, &view, now, &|| Instant::now() >= end || gone.is_cancelled())
    }

    /// Builds the page of a node. Releases the view after every few nodes, as a scan does.
    fn node_page(&self, name: &str) -> Option<NodePage> {
        let names: Vec<String> =
            self.view.read().inventory().node_names().map(ToString::to_string).collect();
        let parts = names.chunks(NODES_PER_STEP);
        let parts = parts.map(|names| self.ranker.standard(names, &self.view.read()));
        let standard = Answer::join(parts.collect());
        let last = self.ranker.last_answers_on(name);
        NodePage::new(name, &self.view.read(), &self.ranker.expected(), &standard, &last)
    }

    fn settle(&self, view: &ClusterView, now: Instant) {
        let Settled { landed, assumptions } = self.ranker.settle(view, now);
        self.metrics.assumed(assumptions);
        for landed in landed {
            self.metrics.landed(&landed);
            events::log(&landed);
        }
    }
}
