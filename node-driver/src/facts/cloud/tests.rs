//! The metadata clients against local HTTP servers that answer like the services.

use super::http::{MetadataError, Patience};
use super::*;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use publication::cloud::MAX_ATTRIBUTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const GB300: &str = r#"{
    "placementGroupId": "c6c749e8-a38b-470e-8c94-2a7d00001bf0",
    "vmSize": "Standard_ND128isr_GB300_v6",
    "interconnectGroupId": "",
    "location": "eastus"
}"#;

/// A short timeout, so that failures show at once.
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

/// Azure IMDS: without the header it refuses; without a version it lists the versions.
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
async fn azure_attributes_are_read_without_empty_values() {
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

/// Azure writes hardware addresses without separators.
#[tokio::test]
async fn azure_network_interfaces_are_read() {
    const NETWORK: &str = r#"{"interface": [
        {"macAddress": "000D3AF806EC", "ipv4": {
            "ipAddress": [{"privateIpAddress": "10.9.255.4", "publicIpAddress": ""}],
            "subnet": [{"address": "10.9.255.0", "prefix": "24"}]
        }, "ipv6": {"ipAddress": []}},
        {"macAddress": "6045BD000001", "ipv4": {"ipAddress": [], "subnet": []},
         "ipv6": {"ipAddress": [{"privateIpAddress": "fd00:db8:deca::4"}]}}
    ]}"#;
    let network = get(|headers: HeaderMap, query: Query<ImdsQuery>| async move {
        imds(&headers, query, NETWORK)
    });
    let base = serve(azure(GB300).route("/metadata/instance/network", network)).await;
    let metadata = read(CloudProvider::Azure, &base, patience(1)).await.unwrap();
    assert!(metadata.machine_type().is_some());
    let [first, second] = metadata.nics() else { panic!("{metadata:?}") };
    assert_eq!(first.hardware_addr.to_string(), "00:0d:3a:f8:06:ec");
    assert_eq!(first.subnet.unwrap().to_string(), "10.9.255.0/24");
    assert_eq!((first.ipv6, second.subnet), (None, None));
    assert_eq!(second.ipv6.unwrap().to_string(), "fd00:db8:deca::4");
    let kept = serde_json::to_string(&metadata).unwrap();
    assert_eq!(serde_json::from_str::<CloudMetadata>(&kept).unwrap(), metadata);
}

#[tokio::test]
async fn a_service_that_is_starting_is_asked_again() {
    let asked = Arc::new(AtomicU32::new(0));
    let router = Router::new()
        .route(
            "/metadata/instance/compute",
            get(|State(asked): State<Arc<AtomicU32>>| async move {
                match asked.fetch_add(1, Ordering::SeqCst) {
                    0 => (StatusCode::SERVICE_UNAVAILABLE, "").into_response(),
                    1 => (StatusCode::TOO_MANY_REQUESTS, "").into_response(),
                    _ => GB300.into_response(),
                }
            }),
        )
        .with_state(Arc::clone(&asked));
    let base = serve(router).await;
    let metadata = read(CloudProvider::Azure, &base, patience(3)).await.unwrap();
    assert!(metadata.machine_type().is_some());
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_refusal_is_final() {
    let asked = Arc::new(AtomicU32::new(0));
    let router = Router::new()
        .route(
            "/metadata/instance/compute",
            get(|State(asked): State<Arc<AtomicU32>>| async move {
                asked.fetch_add(1, Ordering::SeqCst);
                StatusCode::FORBIDDEN
            }),
        )
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
async fn unexpected_answers_are_errors() {
    let page = "<html>Sign in to the wireless network</html>";
    let base = serve(azure(page)).await;
    let error = read(CloudProvider::Azure, &base, patience(1)).await.unwrap_err();
    assert!(matches!(error, MetadataError::Malformed { .. }), "{error}");
    let error = read(CloudProvider::Azure, "no address", patience(1)).await.unwrap_err();
    assert!(matches!(error, MetadataError::Url { .. }), "{error}");
}

#[tokio::test]
async fn an_unreachable_or_silent_service_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let silent = Patience { request: Duration::from_millis(20), ..patience(2) };
    let error = read(CloudProvider::Azure, &base, silent).await.unwrap_err();
    assert!(matches!(error, MetadataError::Late { .. }), "{error}");
    drop(listener);
    let error = read(CloudProvider::Azure, &base, patience(2)).await.unwrap_err();
    assert!(matches!(error, MetadataError::Unreachable { .. }), "{error}");
}

/// Whether a request has a header with this value.
fn has(headers: &HeaderMap, name: &str, value: &str) -> bool {
    headers.get(name).is_some_and(|there| there == value)
}

/// A service that issues a token for a PUT with a lifetime, and serves texts by path to
/// requests with that token.
fn with_token(prefix: &'static str, texts: &'static [(&'static str, &'static str)]) -> Router {
    let lifetime = format!("{prefix}-metadata-token-ttl-seconds");
    let token = format!("{prefix}-metadata-token");
    let mut router = Router::new().route(
        "/latest/api/token",
        put(move |headers: HeaderMap| async move {
            match headers.get(lifetime.as_str()).map(|value| value.to_str().unwrap().parse::<u32>())
            {
                Some(Ok(1..=21600)) => "dG9rZW4=\n".into_response(),
                _ => StatusCode::BAD_REQUEST.into_response(),
            }
        }),
    );
    for (path, text) in texts {
        let token = token.clone();
        router = router.route(
            path,
            get(move |headers: HeaderMap| async move {
                if has(&headers, &token, "dG9rZW4=") {
                    text.into_response()
                } else {
                    StatusCode::UNAUTHORIZED.into_response()
                }
            }),
        );
    }
    router
}

/// A service that only answers requests with a header.
fn with_header(
    name: &'static str,
    value: &'static str,
    texts: &'static [(&'static str, &'static str)],
) -> Router {
    let mut router = Router::new();
    for (path, text) in texts {
        router = router.route(
            path,
            get(move |headers: HeaderMap| async move {
                if has(&headers, name, value) {
                    text.into_response()
                } else {
                    StatusCode::FORBIDDEN.into_response()
                }
            }),
        );
    }
    router
}

const AWS: Cloud = Cloud {
    provider: CloudProvider::Aws,
    texts: &[
        ("/latest/meta-data/instance-type", "p5.48xlarge"),
        ("/latest/meta-data/placement/group-name", "training"),
    ],
    expected: &[
        ("aws.dra.net/instanceType", "p5.48xlarge"),
        ("aws.dra.net/placementGroup", "training"),
    ],
};

const ALIBABA: Cloud = Cloud {
    provider: CloudProvider::Alibaba,
    texts: &[("/latest/meta-data/instance/instance-type", "ecs.ebmgn8v.48xlarge\n")],
    expected: &[("alibaba.dra.net/instanceType", "ecs.ebmgn8v.48xlarge")],
};

const GCE: Cloud = Cloud {
    provider: CloudProvider::Gce,
    texts: &[
        ("/computeMetadata/v1/instance/machine-type", "projects/7/machineTypes/a4-highgpu-8g"),
        ("/computeMetadata/v1/instance/attributes/physical_host", "/b1f0/5a2c/9d3e"),
    ],
    expected: &[
        ("gce.dra.net/block", "b1f0"),
        ("gce.dra.net/host", "9d3e"),
        ("gce.dra.net/machineType", "a4-highgpu-8g"),
        ("gce.dra.net/subBlock", "5a2c"),
    ],
};

const OCI: Cloud = Cloud {
    provider: CloudProvider::Oci,
    texts: &[(
        "/opc/v2/host/",
        r#"{"networkBlockId": "nb", "rackId": "r7", "rdmaTopologyData": {
            "customerHPCIslandId": "ocid1.hpcisland.oc1.iad.anuwcljtisland",
            "customerNetworkBlock": "ocid1.networkblock.oc1.iad.anuwcljtnetwork",
            "customerLocalBlock": "ocid1.localblock.oc1.iad.0123456789anuwcljtaaaabbbbccccddddeeeeffffgggghhhhiiiijjjjkkkkllllmmmm",
            "customerGpuMemoryFabric": ""}}"#,
    )],
    expected: &[
        ("oke.dra.net/hpcIslandId", "anuwcljtisland"),
        (
            "oke.dra.net/localBlockId",
            "anuwcljtaaaabbbbccccddddeeeeffffgggghhhhiiiijjjjkkkkllllmmmm",
        ),
        ("oke.dra.net/networkBlockId", "anuwcljtnetwork"),
        ("oke.dra.net/rackId", "r7"),
    ],
};

/// A metadata service and the expected result.
struct Cloud {
    provider: CloudProvider,
    texts: &'static [(&'static str, &'static str)],
    expected: &'static [(&'static str, &'static str)],
}

fn service(cloud: &Cloud, texts: &'static [(&'static str, &'static str)]) -> Router {
    match cloud.provider {
        CloudProvider::Aws => with_token("x-aws-ec2", texts),
        CloudProvider::Alibaba => with_token("x-aliyun-ecs", texts),
        CloudProvider::Gce => with_header("metadata-flavor", "Google", texts),
        _ => with_header("authorization", "Bearer Oracle", texts),
    }
}

#[tokio::test]
async fn attributes_of_every_other_cloud_are_read() {
    for cloud in [AWS, ALIBABA, GCE, OCI] {
        let base = serve(service(&cloud, cloud.texts)).await;
        let metadata = read(cloud.provider, &base, patience(1)).await.unwrap();
        let said: Vec<_> = metadata.iter().map(|(name, text)| (name, text.as_str())).collect();
        assert_eq!(said, cloud.expected, "{:?}", cloud.provider);
        assert!(said.len() <= MAX_ATTRIBUTES);
    }
}

#[tokio::test]
async fn unknown_attributes_are_absent() {
    for cloud in [AWS, ALIBABA, GCE] {
        let base = serve(service(&cloud, &[])).await;
        let metadata = read(cloud.provider, &base, patience(1)).await.unwrap();
        assert_eq!(metadata, CloudMetadata::default(), "{:?}", cloud.provider);
    }
    let host = &[("/opc/v2/host/", r#"{"rackId": "r7", "rdmaTopologyData": null}"#)];
    let base = serve(service(&OCI, host)).await;
    let metadata = read(CloudProvider::Oci, &base, patience(1)).await.unwrap();
    assert_eq!(metadata, CloudMetadata::default(), "no RDMA network");
}
