//! An extender that is unreachable, frozen, slow or returns invalid responses. Pods are still
//! scheduled, and their devices are aligned, since the claims ensure that.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use futures::stream;
use serde_json::json;
use tests::{ControlPlane, Extender, SchedulerConfig, Scope, ports, suite::Test};

use super::thin_line::{assert_aligned, create, devices, gone, pod, with_installation};

/// The scheduler's timeout for the extender.
const TIMEOUT: &str = "500ms";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        pods_are_aligned_whatever_an_extender_returns,
        pods_are_aligned_with_a_frozen_extender,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// The faults of an extender.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A body that is not JSON.
    Garbage,
    /// An empty body, with success.
    Empty,
    /// JSON `null`.
    Null,
    /// JSON of another type.
    OtherType,
    /// A server error.
    ServerError,
    /// Scores of nodes that were not in the request.
    OtherNodes,
    /// Scores far above and far below the scale.
    OffTheScale,
    /// A response after the scheduler's timeout.
    TooLate,
    /// The connection breaks in the middle of the response.
    BrokenOff,
}

const FAULTS: [Fault; 9] = [
    Fault::Garbage,
    Fault::Empty,
    Fault::Null,
    Fault::OtherType,
    Fault::ServerError,
    Fault::OtherNodes,
    Fault::OffTheScale,
    Fault::TooLate,
    Fault::BrokenOff,
];

/// The current fault, and the number of requests.
#[derive(Debug)]
struct Faulty {
    fault: Mutex<(Fault, usize)>,
    nodes: [String; 2],
}

async fn pods_are_aligned_whatever_an_extender_returns(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, installation, nodes| {
        installation.kill_extender();
        let state = Arc::new(Faulty { fault: Mutex::new((FAULTS[0], 0)), nodes });
        let port = ports::free()?;
        let identity = plane.authority().issue("extender", plane.directory())?;
        let tls = RustlsConfig::from_pem_file(identity.certificate, identity.key).await?;
        let router = Router::new().route("/prioritize", post(answer)).with_state(state.clone());
        let handle = Handle::<SocketAddr>::new();
        let server = axum_server::bind_rustls(([127, 0, 0, 1], port).into(), tls);
        let serving = tokio::spawn(server.handle(handle.clone()).serve(router.into_make_service()));
        handle.listening().await.context("the extender does not listen")?;
        ask_extender(&plane, &format!("https://127.0.0.1:{port}")).await?;
        for (number, fault) in FAULTS.into_iter().enumerate() {
            state.set(fault);
            aligned(scope, &format!("p{number}")).await.with_context(|| format!("{fault:?}"))?;
            assert!(state.asked() > 0, "{fault:?}: the extender was not asked");
        }
        handle.shutdown();
        serving.await??;
        Ok(())
    })
    .await
}

async fn pods_are_aligned_with_a_frozen_extender(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, installation, _| {
        ask_extender(&plane, installation.extender()?.url()).await?;
        installation.extender()?.freeze()?;
        aligned(scope, "a").await?;
        aligned(scope, "b").await
    })
    .await
}

/// Starts a scheduler that calls this extender, as deployed except for its timeout.
async fn ask_extender(plane: &ControlPlane, url: &str) -> anyhow::Result<()> {
    let mut extender = Extender::new(url, &plane.authority().pem());
    TIMEOUT.clone_into(&mut extender.http_timeout);
    plane.restart_scheduler(&SchedulerConfig::with_extenders(vec![extender])).await
}

/// Creates a pod, checks that it gets two NICs on the NUMA node of its GPU, and deletes it.
async fn aligned(scope: &Scope, name: &str) -> anyhow::Result<()> {
    create(scope, pod(name, Some("2"))).await?;
    assert_aligned(&devices(scope, name).await?, 2);
    scope.delete_pod(name).await?;
    gone(scope, name).await
}

impl Faulty {
    fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = (fault, 0);
    }

    fn asked(&self) -> usize {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn next(&self) -> Fault {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.1 += 1;
        fault.0
    }
}

async fn answer(State(faulty): State<Arc<Faulty>>) -> Response {
    let scores = |scores: [(&str, i64); 2]| {
        let scores = scores.map(|(host, score)| json!({"Host": host, "Score": score}));
        axum::Json(scores).into_response()
    };
    let [one, two] = &faulty.nodes;
    match faulty.next() {
        Fault::Garbage => "<html>502 Bad Gateway</html>".into_response(),
        Fault::Empty => StatusCode::OK.into_response(),
        Fault::Null => axum::Json(json!(null)).into_response(),
        Fault::OtherType => axum::Json(json!({"Host": 7})).into_response(),
        Fault::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, "broken").into_response(),
        Fault::OtherNodes => scores([("nowhere", 10), ("elsewhere", 0)]),
        Fault::OffTheScale => scores([(one, 1_000_000), (two, -1_000_000)]),
        // Never responds. The scheduler gives up, and the connection ends with the server.
        Fault::TooLate => std::future::pending::<Infallible>().await.into_response(),
        Fault::BrokenOff => {
            let parts = [Ok(Bytes::from("[{\"Host\":")), Err(io::Error::other("broken off"))];
            Body::from_stream(stream::iter(parts)).into_response()
        }
    }
}
