//! NICs in PCI domains above ffff: the standard bus ID has four digits of the domain, so such NICs
//! publish none, and no claim can list them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300";
const NICS: [&str; 4] = ["0101:00:00.0", "0102:00:00.0", "0103:00:00.0", "0104:00:00.0"];

/// The example as node-driver publishes it if its NICs are in domains above ffff.
fn cluster() -> TempDir {
    let example = format!("{EXAMPLE}/cluster.yaml");
    let mut objects = cluster_model::snapshot::objects(Path::new(&example)).unwrap();
    for object in objects.iter_mut().filter(|object| object["spec"]["driver"] == "dra.net") {
        for device in object["spec"]["devices"].as_array_mut().unwrap() {
            let attributes = device["attributes"].as_object_mut().unwrap();
            attributes.remove("resource.kubernetes.io/pciBusID").unwrap();
        }
    }
    let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let text =
        NICS.iter().fold(list.to_string(), |text, nic| text.replace(nic, &format!("1{nic}")));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cluster.json"), text).unwrap();
    folder
}

/// The text, and whether the pod is denied.
fn run(words: &[&str], cluster: &TempDir) -> (String, bool) {
    let path = cluster.path().display().to_string();
    let words = [&["kubectl-dranet"], words, &["--snapshot", &path]].concat();
    let output = kubectl_dranet::run(&Args::try_parse_from(words).unwrap()).unwrap();
    (output.text, output.denied)
}

/// A claim by bus IDs fits on no such node, and nothing else ties these GPUs to NICs.
#[test]
fn a_pod_that_no_node_can_serve_is_denied() {
    for pod in ["1nic-aligned.yaml", "2nic-aligned.yaml"] {
        let (text, denied) = run(&["plan", "-f", &format!("{EXAMPLE}/{pod}")], &cluster());
        assert!(denied, "{text}");
        insta::assert_snapshot!(pod.replace(".yaml", ""), text);
    }
}

/// The check is not passed, and says the same as the denial.
#[test]
fn doctor_says_that_such_machines_serve_no_pod() {
    let cluster = cluster();
    let (text, _) = run(&["doctor", "-o", "json"], &cluster);
    let doctor: Value = serde_json::from_str(&text).unwrap();
    let denied = doctor["machines"][0]["denied"].as_str().unwrap();
    assert!(denied.contains("no device has resource.kubernetes.io/pciBusID"), "{denied}");
    let (text, _) = run(&["doctor"], &cluster);
    let mut lines = text.lines().filter(|line| line.contains("serves no pod"));
    assert_eq!(lines.next().is_some(), true, "{text}");
    insta::assert_snapshot!(text);
}
