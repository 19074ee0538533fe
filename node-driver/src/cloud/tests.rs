//! The clients against local HTTP servers that answer as the services do.

use super::http::{MetadataError, Patience};
use super::*;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const GB300: &str = r#"{
    "placementGroupId": "c6c749e8-a38b-470e-8c94-2a7d00001bf0",
    "vmSize": "Standard_ND128isr_GB300_v6",
    "interconnectGroupId": "",
    "location": "eastus"
}"#;

/// Little patience, so that a failure is seen at once.
fn patience(attempts: u32) -> Patience {
    Patience { request: Duration::from_millis(500), attempts, pause: Duration::from_millis(1) }
}

/// Serves a router on a free port until the runtime of the test ends.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ImdsQuery {
    api_version: Option<String>,
    format: Option<String>,
}

/// Azure IMDS: no header, no answer; no version, the list of versions.
fn imds(headers: &HeaderMap, Query(query): Query<ImdsQuery>, body: &'static str) -> Response {
    if headers.get("metadata").is_none_or(|value| value != "true") {
        return (StatusCode::BAD_REQUEST, "Required metadata header not specified").into_response();
    }
    if query.api_version.as_deref() != Some("2025-11-11") || query.format.as_deref() != Some("json")
    {
        return (StatusCode::BAD_REQUEST, "Bad request. api-version is invalid").into_response();
    }
    Response::new(Body::from(body))
}

fn azure(body: &'static str) -> Router {
    Router::new().route(
        "/metadata/instance/compute",
        get(move |headers: HeaderMap, query: Query<ImdsQuery>| async move {
            imds(&headers, query, body)
        }),
    )
}

#[tokio::test]
async fn azure_gives_what_it_knows_and_nothing_empty() {
    let base = serve(azure(GB300)).await;
    let metadata = read(CloudProvider::Azure, &base, patience(1)).await.unwrap();
    insta::assert_json_snapshot!(metadata, @r#"
    {
      "azure.dra.net/placementGroupId": "c6c749e8-a38b-470e-8c94-2a7d00001bf0",
      "azure.dra.net/vmSize": "Standard_ND128isr_GB300_v6"
    }
    "#);
    assert_eq!(metadata.machine_type(), Some("Standard_ND128isr_GB300_v6"));
}

#[tokio::test]
async fn a_service_that_is_starting_is_asked_again() {
    let asked = Arc::new(AtomicU32::new(0));
    let starting = |State(asked): State<Arc<AtomicU32>>| async move {
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => (StatusCode::SERVICE_UNAVAILABLE, "").into_response(),
            1 => (StatusCode::TOO_MANY_REQUESTS, "").into_response(),
            _ => GB300.into_response(),
        }
    };
    let router = Router::new()
        .route("/metadata/instance/compute", get(starting))
        .with_state(Arc::clone(&asked));
    let base = serve(router).await;
    let metadata = read(CloudProvider::Azure, &base, patience(3)).await.unwrap();
    assert!(metadata.machine_type().is_some());
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_refusal_is_final() {
    let asked = Arc::new(AtomicU32::new(0));
    let refusing = |State(asked): State<Arc<AtomicU32>>| async move {
        asked.fetch_add(1, Ordering::SeqCst);
        StatusCode::FORBIDDEN
    };
    let router = Router::new()
        .route("/metadata/instance/compute", get(refusing))
        .with_state(Arc::clone(&asked));
    let base = serve(router).await;
    let error = read(CloudProvider::Azure, &base, patience(3)).await.unwrap_err();
    assert!(
        matches!(error, MetadataError::Refused { status: StatusCode::FORBIDDEN, .. }),
        "{error}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_is_no_metadata_is_an_error() {
    let page = "<html>Sign in to the wireless network</html>";
    let base = serve(azure(page)).await;
    let error = read(CloudProvider::Azure, &base, patience(1)).await.unwrap_err();
    assert!(matches!(error, MetadataError::Malformed { .. }), "{error}");
    let error = read(CloudProvider::Azure, "no address", patience(1)).await.unwrap_err();
    assert!(matches!(error, MetadataError::Url { .. }), "{error}");
}

#[tokio::test]
async fn a_service_that_is_away_or_silent_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let silent = Patience { request: Duration::from_millis(20), ..patience(2) };
    let error = read(CloudProvider::Azure, &base, silent).await.unwrap_err();
    assert!(matches!(error, MetadataError::Late { .. }), "{error}");
    drop(listener);
    let error = read(CloudProvider::Azure, &base, patience(2)).await.unwrap_err();
    assert!(matches!(error, MetadataError::Unreachable { .. }), "{error}");
}
