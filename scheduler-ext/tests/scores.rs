//! Scores of GB300 nodes in different states, for pods as they reach the
//! extender: a node is the example cluster's, under another name.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{MinorVersion, Settings};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use scheduler_ext::score::prioritize;
use scheduler_ext::wire::ExtenderArgs;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// GPU and NIC of one index are partners; 0 and 1 are on one NUMA node.
const NICS: [&str; 4] =
    ["pci-0101-00-00-0", "pci-0102-00-00-0", "pci-0103-00-00-0", "pci-0104-00-00-0"];

/// Nodes named as the devices that are in use on them.
const NODES: [&str; 6] = ["none", "gpu0", "gpu0-nic0", "nic3", "gpu0-nic0-nic1", "gpu0-gpu2"];

/// The nodes, and one without a graph.
fn view() -> ClusterView {
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for node in NODES {
        fs::write(folder.path().join(format!("{node}.yaml")), text.replace(NODE, node)).unwrap();
    }
    let plain = "apiVersion: v1\nkind: Node\nmetadata: {name: plain}\n";
    fs::write(folder.path().join("plain.yaml"), plain).unwrap();
    let (mut view, _) = snapshot::load(folder.path()).unwrap();
    for node in NODES.into_iter().filter(|node| *node != "none") {
        view.apply(claim_on(node)).unwrap();
    }
    view.apply(template()).unwrap();
    view
}

/// A claim that holds what the node's name says.
fn claim_on(node: &str) -> ResourceClaim {
    let results: Vec<_> = node
        .split('-')
        .map(|device| {
            let index: usize = device[3..].parse().unwrap();
            let (driver, name) = match &device[..3] {
                "gpu" => ("gpu.nvidia.com", format!("gpu-{index}")),
                _ => ("dra.net", NICS[index].to_owned()),
            };
            json!({"request": "r", "driver": driver, "pool": node, "device": name})
        })
        .collect();
    from(&json!({
        "metadata": {"namespace": "other", "name": node},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }))
}

/// One GPU and its partner NIC, as admission writes it.
fn template() -> ResourceClaimTemplate {
    from(&json!({
        "metadata": {"namespace": "team", "name": "one"},
        "spec": {"spec": {"devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
                {"name": "nic", "exactly": {"deviceClassName": "dranet.net"}},
            ],
            "constraints": [
                {"requests": ["gpu", "nic"], "matchAttribute": "gpu.nvidia.com/uuid"},
            ],
        }}},
    }))
}

fn pod(claims: &Value) -> Pod {
    from(&json!({
        "metadata": {"namespace": "team", "name": "p"},
        "spec": {"containers": [], "resourceClaims": claims},
    }))
}

fn from<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn table(pod: &Pod) -> String {
    table_of(pod, &view())
}

fn table_of(pod: &Pod, view: &ClusterView) -> String {
    let nodes: Vec<_> = NODES.iter().copied().chain(["plain"]).map(str::to_owned).collect();
    let mut text = String::new();
    for (priority, basis) in prioritize(pod, &nodes, view) {
        writeln!(text, "{:<16}{:>2}  {basis:?}", priority.host, priority.score).unwrap();
    }
    text
}

#[test]
fn broken_cells_are_preferred() {
    let pod = pod(&json!([{"name": "dranet", "resourceClaimTemplateName": "one"}]));
    insta::assert_snapshot!(table(&pod));
}

/// Before 1.36 the scheduler takes pools in random order.
#[test]
fn of_an_older_server_scores_are_likely() {
    let pod = pod(&json!([{"name": "dranet", "resourceClaimTemplateName": "one"}]));
    let mut older = view();
    older.set_settings(Settings::defaults_of(MinorVersion::V1_35));
    assert_eq!(table_of(&pod, &older).matches("Likely").count(), 6);
    assert_eq!(table(&pod).matches("Predicted").count(), 6);
}

#[test]
fn a_pod_without_claims_gets_no_opinion() {
    assert_eq!(table(&pod(&json!([]))), "");
}

#[test]
fn a_claim_that_is_not_known_is_scored_neutrally() {
    let pod = pod(&json!([{"name": "dranet", "resourceClaimTemplateName": "lost"}]));
    insta::assert_snapshot!(table(&pod));
}

#[test]
fn an_allocated_claim_is_no_matter_of_ours() {
    let pod = from(&json!({
        "metadata": {"namespace": "other", "name": "p"},
        "spec": {"containers": [], "resourceClaims": [
            {"name": "mine", "resourceClaimName": "gpu0"},
        ]},
    }));
    assert_eq!(table(&pod), "");
}

/// The keys as kube-scheduler writes them: Go field names.
#[test]
fn arguments_as_the_scheduler_writes_them() {
    let args: ExtenderArgs = from(&json!({
        "Pod": {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {}},
        "Nodes": null,
        "NodeNames": ["a", "b"],
    }));
    assert_eq!(args.pod.metadata.name.as_deref(), Some("p"));
    assert_eq!(args.node_names.unwrap(), ["a", "b"]);
    let none: ExtenderArgs = from(&json!({"Pod": {"metadata": {}}, "NodeNames": null}));
    assert_eq!(none.node_names, None);
}
