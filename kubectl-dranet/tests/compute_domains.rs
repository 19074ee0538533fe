//! `fabric` names the `ComputeDomain`s that pods wait for, with the reason of admission's event.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;

const NAME: &str = "dranet-compute-domain-0123456789abcdef";

/// A pod of a job with a claim for the channel of its `ComputeDomain`.
fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": true},
        ]},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "main"}], "resourceClaims": [
            {"name": "dranet-compute-domain", "resourceClaimTemplateName": format!("{NAME}-channel")},
        ]},
    })
}

/// The events of admission about the pod, an older one and a newer one, and one of another namespace.
fn events() -> Vec<Value> {
    let event = |namespace: &str, time: &str, why: &str| {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": format!("{namespace}-{time}"), "namespace": namespace},
            "reason": "ComputeDomainNotCreated", "eventTime": format!("2026-01-01T00:00:{time}Z"),
            "note": format!("ComputeDomain {NAME} does not exist: {why}"),
        })
    };
    vec![
        event("team", "01", "an old reason"),
        event("team", "03", "exceeded quota"),
        event("other", "09", "another namespace"),
    ]
}

fn run(objects: &[Value], format: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.json");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let objects = [&[node], objects].concat();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(&file, list.to_string()).unwrap();
    let path = file.display().to_string();
    let args = ["kubectl-dranet", "fabric", "-o", format, "--snapshot", &path];
    kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap().text
}

#[test]
fn a_compute_domain_that_does_not_exist_is_named_with_the_reason() {
    let domain = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
        "metadata": {"name": NAME, "namespace": "team", "labels": {
            "dranet.io/fabric-group": "0123456789abcdef",
        }},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {
            "name": format!("{NAME}-channel"),
        }}},
    });
    let pods = [pod("a", None), pod("b", None), pod("c", Some("n"))];
    let text = run(&[&pods[..], &events()].concat(), "text");
    let line = format!(
        "Job team/train: 2 pods wait for ComputeDomain team/{NAME}: does not exist: exceeded quota\n"
    );
    assert!(text.replace("\n  ", " ").contains(&line), "{text}");
    let document: Value = serde_json::from_str(&run(&pods, "json")).unwrap();
    assert_eq!(
        document["computeDomains"],
        json!([{
            "name": format!("team/{NAME}"), "job": "Job team/train", "pods": 2,
            "why": "admission has not created it yet",
        }])
    );
    let text = run(&[&pods[..], &[domain]].concat(), "text");
    assert!(!text.contains("ComputeDomain"), "{text}");
}
