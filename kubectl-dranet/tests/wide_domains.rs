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

/// The example as node-driver publishes it if its NICs are in domains above ffff. `has_partners` says
/// whether they name the GPUs that are nearest to them.
fn cluster(has_partners: bool) -> TempDir {
    let example = format!("{EXAMPLE}/cluster.yaml");
    let mut objects = cluster_model::snapshot::objects(Path::new(&example)).unwrap();
    for object in objects.iter_mut().filter(|object| object["spec"]["driver"] == "dra.net") {
        for device in object["spec"]["devices"].as_array_mut().unwrap() {
            let attributes = device["attributes"].as_object_mut().unwrap();
            attributes.remove("resource.kubernetes.io/pciBusID").unwrap();
            attributes.retain(|name, _| has_partners || name != "gpu.nvidia.com/uuid");
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

fn plan(pod: &str, cluster: &TempDir) -> (String, bool) {
    run(&["plan", "-f", pod], cluster)
}

/// A claim by bus IDs fits on no such node, and nothing else ties these devices.
#[test]
fn a_pod_that_no_node_can_serve_is_denied() {
    let (one, two) = ("1nic-aligned.yaml", "2nic-aligned.yaml");
    let [one, two] = [one, two].map(|file| format!("{EXAMPLE}/{file}"));
    for (pod, has_partners) in [(&two, true), (&two, false), (&one, false)] {
        let (text, denied) = plan(pod, &cluster(has_partners));
        assert!(denied, "{pod}: {text}");
    }
    insta::assert_snapshot!(plan(&two, &cluster(true)).0);
    let (text, denied) = plan(&one, &cluster(true));
    assert!(!denied && text.contains("1 of 1 node can serve it"), "{text}");
}

/// A preferred pod is told that it gets no near devices.
#[test]
fn preferred_alignment_gets_any_devices() {
    let pod = fs::read_to_string(format!("{EXAMPLE}/2nic-aligned.yaml")).unwrap();
    let annotation = "dranet.io/alignment-policy: preferred\n    dranet.io/aligned-nics";
    let pod = pod.replacen("dranet.io/aligned-nics", annotation, 1);
    let (folder, cluster) = (tempfile::tempdir().unwrap(), cluster(true));
    let file = folder.path().join("pod.yaml");
    fs::write(&file, pod).unwrap();
    let (text, denied) = plan(&file.display().to_string(), &cluster);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!denied && line.contains("(join any); 1 of 1 node can serve it"), "{text}");
}

/// The check is not passed, and says the same as the denial.
#[test]
fn doctor_says_that_such_machines_serve_no_pod() {
    let cluster = cluster(false);
    let (text, _) = run(&["doctor", "-o", "json"], &cluster);
    let doctor: Value = serde_json::from_str(&text).unwrap();
    let denied = doctor["machines"][0]["denied"].as_str().unwrap();
    assert!(denied.contains("no device has resource.kubernetes.io/pciBusID"), "{denied}");
    let (text, _) = run(&["doctor"], &cluster);
    assert!(text.contains("\u{2717} every machine type serves a pod"), "{text}");
}
