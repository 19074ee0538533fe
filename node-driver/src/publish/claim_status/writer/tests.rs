//! What is written after several updates, and what is not written again.

use super::*;
use crate::model::plan::{PlannedDevice, Wiring};
use axum::Router;
use axum::body::Bytes;
use axum::routing;

fn plan(device: &str) -> Plan {
    let device = PlannedDevice {
        function: None,
        request: "nics".into(),
        pool: "n".into(),
        device: device.into(),
        place: None,
        share_id: None,
        is_whole: false,
        admin_access: false,
        pci_bus_id: "0101:00:00.0".into(),
        rdma: None,
        link: None,
    };
    Plan {
        claim: ClaimRef { namespace: "team".into(), name: "c".into(), uid: "u-1".into() },
        pods: vec![],
        devices: vec![device],
        rdma_cm: None,
        plugin_gpus: Vec::new(),
        others: vec![],
        pod_claim_name: None,
        wiring: Wiring::default(),
        boot_id: None,
    }
}

/// A server that records writes.
fn server() -> (Client, Arc<Mutex<Vec<Value>>>) {
    let written = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&written);
    let keep = async move |body: Bytes| {
        kept.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        body
    };
    let path = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/c/status";
    let router = Router::new().route(path, routing::patch(keep));
    (Client::new(router, "default"), written)
}

fn entry(address: &str, ready: &str, time: &str) -> Value {
    json!({
        "driver": "dra.net", "pool": "n", "device": "d",
        "conditions": [
            {"type": "Ready", "status": ready, "reason": "R", "message": "m", "lastTransitionTime": time}
        ],
        "networkData": {"interfaceName": "net1", "ips": [address]},
    })
}

#[test]
fn an_unchanged_status_is_not_written_again() {
    let (then, now) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let foreign = json!({"driver": "gpu.nvidia.com", "pool": "n", "device": "d"});
    let claim = |entry: &Value| -> ResourceClaim {
        let claim =
            json!({"metadata": {"name": "c"}, "spec": {}, "status": {"devices": [foreign, entry]}});
        serde_json::from_value(claim).unwrap()
    };
    let said = claim(&entry("10.0.0.1/24", "True", then));
    for (address, ready, is_expected, time) in [
        ("10.0.0.1/24", "True", true, then),
        // The address differs, and the condition is unchanged since then.
        ("10.0.0.2/24", "True", false, then),
        ("10.0.0.1/24", "False", false, now),
    ] {
        let mut status = json!({"status": {"devices": [entry(address, ready, now)]}});
        assert_eq!(is_said(&said, &mut status), is_expected, "{address} {ready}");
        let condition = &status["status"]["devices"][0]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], time, "{address} {ready}");
    }
    let mut status = json!({"status": {"devices": [entry("10.0.0.1/24", "True", now)]}});
    assert!(!is_said(&claim(&json!({"driver": "d", "pool": "n", "device": "d"})), &mut status));
}

#[tokio::test]
async fn only_the_newest_status_is_written() {
    let (client, written) = server();
    let writer = StatusWriter::new(client, "dra.net");
    for device in ["first", "second", "third"] {
        writer.publish(plan(device), Progress::Prepared);
    }
    while writer.due().contains_key("u-1") {
        tokio::task::yield_now().await;
    }
    let written: Vec<_> = written
        .lock()
        .unwrap()
        .iter()
        .map(|status| status["status"]["devices"][0]["device"].clone())
        .collect();
    assert_eq!(written, ["third"]);
}
