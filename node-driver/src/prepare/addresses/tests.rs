//! Against an in-process server: two pages of claims, then a watch.

use super::*;
use crate::model::claim::ClaimRef;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request, StatusCode};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const UID: &str = "u-1";

/// The requests so far: method, path, and the part of the query that distinguishes list
/// from watch.
type Asked = Arc<Mutex<Vec<String>>>;

fn object(uid: &str, version: u32, address: Option<&str>) -> Value {
    let devices = address.map(|address| {
        json!([{"driver": "dra.net", "pool": "n", "device": "d",
            "networkData": {"ips": [format!("{address}/30")]}}])
    });
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "team", "name": uid, "uid": uid,
            "resourceVersion": version.to_string()},
        "spec": {}, "status": {"devices": devices},
    })
}

/// Two claims on two pages. The range has two host addresses besides its gateway.
/// Whichever one the claim writes first, another claim has just written it too.
async fn answer(State(asked): State<Asked>, request: Request<Body>) -> (StatusCode, Body) {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_watch = query.contains("watch=true");
    let line = |what: &str| format!("{} {what}", request.method());
    let (line, answer) = match request.method().clone() {
        Method::PATCH => {
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let ip = body["status"]["devices"][0]["networkData"]["ips"][0].as_str().unwrap();
            let before = asked.lock().unwrap().iter().filter(|it| it.starts_with("PATCH")).count();
            let version = if before == 0 { 12 } else { 14 };
            let address = ip.trim_end_matches("/30").to_owned();
            (format!("PATCH {address}"), object(UID, version, Some(&address)).to_string())
        }
        _ if is_watch => {
            let asked = asked.lock().unwrap();
            let first = asked.iter().find_map(|it| it.strip_prefix("PATCH ")).unwrap();
            let event = |kind: &str, object: Value| json!({"type": kind, "object": object});
            let other = if first == "10.9.0.1" { "10.9.0.2" } else { "10.9.0.1" };
            let events = [
                event("MODIFIED", object("u-2", 11, Some(first))),
                event("MODIFIED", object(UID, 12, Some(first))),
                event("DELETED", object("u-3", 13, None)),
                event("MODIFIED", object(UID, 14, Some(other))),
            ];
            (line("watch"), events.map(|event| format!("{event}\n")).concat())
        }
        _ if query.contains("continue=") => {
            let page = json!({"metadata": {"resourceVersion": "10"},
                "items": [object("u-3", 3, Some("10.7.0.1")), object(UID, 4, None)]});
            (line("page 2"), page.to_string())
        }
        _ => {
            let page = json!({"metadata": {"resourceVersion": "10", "continue": "next"},
                "items": [object("u-2", 2, None)]});
            (line("page 1"), page.to_string())
        }
    };
    asked.lock().unwrap().push(line);
    (StatusCode::OK, Body::from(answer))
}

#[tokio::test]
async fn claims_are_listed_once_and_then_followed() {
    let asked = Asked::default();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&asked));
    let client = Client::new(router, "default");
    let device = AllocatedDevice {
        request: "nic".to_owned(),
        pool: "n".to_owned(),
        device: "d".to_owned(),
        place: None,
        share_id: None,
        consumed: BTreeMap::new(),
        is_whole: false,
        admin_access: false,
        parameters: Some(json!({"interface": {"addressRange": "10.9.0.0/30"}})),
        claimed: None,
        address: None,
    };
    let claim =
        ClaimRef { namespace: "team".to_owned(), name: UID.to_owned(), uid: UID.to_owned() };
    let (pods, others) = (Vec::new(), Vec::new());
    let mut claim =
        AllocatedClaim { claim, pods, pod_claim_name: None, devices: vec![device], others };
    reserve(&client, "dra.net", &mut claim).await.unwrap();

    let asked = asked.lock().unwrap();
    let [page_1, page_2, first, watch, second] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(
        [page_1, page_2, watch].map(String::as_str),
        ["GET page 1", "GET page 2", "GET watch"]
    );
    assert_ne!(first, second, "another claim had the first");
    let has = claim.devices[0].address.unwrap().address.to_string();
    assert_eq!(*second, format!("PATCH {has}"));
}
