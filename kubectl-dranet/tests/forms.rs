//! The forms in which people name pods, workloads and nodes.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "ui/cluster.rs"]
mod cluster;

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The cluster with a Job of which one pod runs and two wait.
fn snapshot(folder: &Path) -> String {
    let path = cluster::write(folder);
    let mut list: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for (name, node) in [("train-0", Some("b")), ("train-1", None), ("train-2", None)] {
        list["items"].as_array_mut().unwrap().push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "team",
                "annotations": { "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" },
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "t" }],
            },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "main" }] },
        }));
    }
    fs::write(&path, list.to_string()).unwrap();
    path.display().to_string()
}

/// The first line that a command prints, or its error.
fn first(words: &[&str], folder: &Path) -> String {
    let snapshot = snapshot(folder);
    let all = [&["kubectl-dranet"], words, &["--snapshot", &snapshot]].concat();
    let output = match Args::try_parse_from(all) {
        Ok(args) => kubectl_dranet::run(&args).map_err(|error| process::exit::one_line(&error)),
        Err(error) => Err(error.to_string()),
    };
    let text = output.map_or_else(|error| format!("error: {error}"), |output| output.text);
    text.lines().next().unwrap_or_default().replace(&snapshot, "FILE")
}

#[test]
fn pods_and_workloads_are_named_as_for_kubectl() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let waits = "Pod waits is denied: ";
    for words in [
        &["explain", "waits", "-n", "acme"][..],
        &["explain", "pod/waits", "-n", "acme"],
        &["explain", "pod", "waits", "-n", "acme"],
    ] {
        assert!(first(words, folder).starts_with(waits), "{words:?}: {}", first(words, folder));
    }
    let job = "Pod train-1 of job train (2 of 3 pods wait) fits on 1 of 2 nodes now.";
    for words in [
        &["explain", "job/train", "-n", "team"][..],
        &["explain", "jobs", "train", "-n", "team"],
        &["explain", "jobs.batch/train", "-n", "team"],
    ] {
        assert_eq!(first(words, folder), job, "{words:?}");
    }
    assert_eq!(
        first(&["explain", "job/other", "-n", "team"], folder),
        "error: found no pod of job `other` of namespace `team` in `FILE`"
    );
}

#[test]
fn all_pods_that_wait_are_explained_once_for_each_owner() {
    let folder = TempDir::new().unwrap();
    let snapshot = snapshot(folder.path());
    let run = |words: &[&str]| {
        let all = [&["kubectl-dranet", "explain", "--pending"], words, &["--snapshot", &snapshot]];
        kubectl_dranet::run(&Args::try_parse_from(all.concat()).unwrap()).unwrap()
    };
    let all = run(&["-A"]).text;
    let heads: Vec<&str> = all.lines().filter(|line| line.starts_with("Pod ")).collect();
    assert_eq!(heads.len(), 2, "{all}");
    assert!(heads[0].starts_with("Pod acme/waits is denied: "), "{all}");
    assert!(heads[1].starts_with("Pod team/train-1 of Job train (2 pods wait) fits on 1"), "{all}");
    assert_eq!(run(&["-n", "nobody"]).text, "no pod waits for devices\n");
}

#[test]
fn top_shows_the_nodes_that_are_named() {
    let folder = TempDir::new().unwrap();
    let snapshot = snapshot(folder.path());
    let run = |words: &[&str]| {
        let all = [&["kubectl-dranet", "top"], words, &["--snapshot", &snapshot, "-o", "name"]];
        let output = kubectl_dranet::run(&Args::try_parse_from(all.concat()).unwrap());
        output.map_or_else(|error| process::exit::one_line(&error), |output| output.text)
    };
    assert_eq!(run(&[]), "node/a\nnode/b\n");
    assert_eq!(run(&["-A"]), "node/a\nnode/b\n");
    assert_eq!(run(&["b"]), "node/b\n");
    assert_eq!(run(&["b", "none"]), "found no node `none`");
}

#[test]
fn lint_reads_pods_and_workloads_of_files() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("job.yaml");
    let text = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  template:\n    metadata:\n      annotations: {dranet.io/aligned-nics: \"two\", dranet.io/gpus: \"1\"}\n    spec: {containers: [{name: main, image: main}]}\n";
    fs::write(&file, text).unwrap();
    let snapshot = snapshot(folder.path());
    let file = file.display().to_string();
    let words = ["kubectl-dranet", "lint", "-f", &file, "--snapshot", &snapshot];
    let output = kubectl_dranet::run(&Args::try_parse_from(words).unwrap()).unwrap();
    assert!(output.text.starts_with("Job train\n  error: annotations: "), "{}", output.text);
    assert!(output.text.contains("[denied]") && output.denied, "{}", output.text);
}

/// A list of NICs in a pod names NICs that it does not get. The runtime replaces what is in the environment by
/// the driver's list; what a command sets stays.
#[test]
fn lint_finds_lists_of_nics_beside_the_claim() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("pod.json");
    let snapshot = snapshot(folder.path());
    let path = file.display().to_string();
    let linted = |annotations: &Value, container: &Value| {
        let mut container = container.clone();
        container["name"] = "main".into();
        container["image"] = "main".into();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "train", "annotations": annotations },
            "spec": { "containers": [container] },
        });
        fs::write(&file, pod.to_string()).unwrap();
        let words = ["kubectl-dranet", "lint", "-f", &path, "--snapshot", &snapshot, "-o", "json"];
        let output = kubectl_dranet::run(&Args::try_parse_from(words).unwrap()).unwrap();
        let found: Value = serde_json::from_str(&output.text).unwrap();
        let findings = found["claims"][0]["findings"].as_array().unwrap().iter();
        let lists = findings.filter(|finding| finding["check"] == "nic-list");
        lists.map(|list| list["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let asks = json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" });
    let list = json!({ "env": [{ "name": "NCCL_IB_HCA", "value": "mlx5_0" }] });
    let replaced = "`NCCL_IB_HCA=mlx5_0` has no effect: the driver sets it to the NICs of the claim; \
                    remove it";
    assert_eq!(linted(&asks, &list), [replaced]);
    assert!(linted(&json!({}), &list).is_empty(), "it asks for no NICs");
    let command = json!({ "command": ["mpirun", "-x", "NCCL_IB_HCA=mlx5_0", "train"] });
    let stays =
        "the command sets `NCCL_IB_HCA=mlx5_0`, which hides other NICs of the claim; remove it";
    assert_eq!(linted(&asks, &command), [stays]);
    let prefix = json!({ "command": ["mpirun", "-x", "NCCL_IB_HCA=mlx5", "train"] });
    assert!(linted(&asks, &prefix).is_empty());
}
