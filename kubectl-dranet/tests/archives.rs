//! Snapshots written by `snapshot`, and the commands that read and compare them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const EXAMPLE: &str = "../deploy/examples/aks-gb300";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// The example cluster with a running pod and a pending one.
fn cluster(folder: &Path) -> String {
    let mut objects =
        cluster_model::snapshot::objects(&Path::new(EXAMPLE).join("cluster.yaml")).unwrap();
    let result = |driver, device| json!({ "request": "r", "driver": driver, "pool": NODE, "device": device });
    let pod = |name: &str, spec: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "acme", "labels": { "app": name },
                "annotations": { "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" },
            },
            "spec": spec,
        })
    };
    let containers = json!([{ "name": "main", "image": "main", "env": [{ "name": "TOKEN", "value": "s3cret" }] }]);
    objects.extend([
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": "held", "namespace": "acme" },
            "spec": { "devices": { "requests": [
                { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
                { "name": "nic", "exactly": { "deviceClassName": "dranet.net" } },
            ] } },
            "status": { "allocation": { "devices": { "results": [
                result("gpu.nvidia.com", "gpu-0"), result("dra.net", "pci-0103-00-00-0"),
            ] } } },
        }),
        pod(
            "runs",
            json!({
                "nodeName": NODE,
                "containers": containers,
                "resourceClaims": [{ "name": "dranet", "resourceClaimName": "held" }],
            }),
        ),
        pod("waits", json!({ "containers": containers })),
    ]);
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let path = folder.join("cluster.json");
    fs::write(&path, list.to_string()).unwrap();
    path.display().to_string()
}

fn run(args: &[&str]) -> (String, bool) {
    let args = Args::try_parse_from([&["kubectl-dranet"], args].concat()).unwrap();
    let output = kubectl_dranet::run(&args);
    let output = output.map_err(|error| process::exit::one_line(&error)).unwrap();
    (output.text, output.denied)
}

/// All commands that read a cluster.
const COMMANDS: &[&[&str]] = &[
    &["graph"],
    &["plan", "pod/waits", "-n", "acme", "-o", "json"],
    &["explain", "pod/waits", "-n", "acme"],
    &["explain", "pod/runs", "-n", "acme"],
    &["verify", "-A", "-o", "wide"],
    &["verify", "-A", "-o", "yaml"],
    &["verify", "-A", "-o", "name", "-l", "app=runs"],
    &["capacity", "-o", "json"],
    &["lint", "-A"],
    &["doctor", "-o", "yaml"],
    &["fabric"],
    &["top", "-o", "wide"],
    &["top", "-o", "name"],
    &["version"],
];

#[test]
fn an_archive_gives_the_same_answers_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(folder.path());
    let archive = folder.path().join("cluster.gz").display().to_string();
    run(&["snapshot", "--snapshot", &cluster, "-o", &archive]);
    for command in COMMANDS {
        let ask = |path: &str| {
            // Archives contain no environment variables.
            let (text, denied) = run(&[command, &["--snapshot", path][..]].concat());
            (text.replace(path, "FILE"), denied)
        };
        if command[0] != "plan" {
            assert_eq!(ask(&archive), ask(&cluster), "{command:?}");
        }
        assert!(!ask(&archive).0.contains("s3cret"), "{command:?}");
    }
    assert_eq!(run(&["diff", &archive, &archive]).0, "no difference\n");
}

/// A live cluster is also read without the malformed object.
#[test]
fn a_malformed_object_of_an_archive_is_ignored_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let path = cluster(folder.path());
    let mut list: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    list["items"].as_array_mut().unwrap().push(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": { "name": "broken" }, "spec": { "devices": 3 },
    }));
    let with_broken = folder.path().join("broken.json").display().to_string();
    fs::write(&with_broken, list.to_string()).unwrap();
    let archive = folder.path().join("broken.gz").display().to_string();
    run(&["snapshot", "--snapshot", &with_broken, "-o", &archive]);
    let args = ["kubectl-dranet", "top", "--snapshot", &archive];
    let output = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap();
    assert_eq!(output.text, run(&["top", "--snapshot", &path]).0);
    let [note] = output.notes.as_slice() else { panic!("{:?}", output.notes) };
    assert!(note.starts_with("ignored an object: ResourceSlice `broken` in "), "{note}");
}

#[test]
fn a_masked_archive_has_no_names_and_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(folder.path());
    let archive = folder.path().join("masked.gz").display().to_string();
    run(&["snapshot", "--snapshot", &cluster, "--mask", "-o", &archive]);
    let count = |path: &str, command: &[&str]| run(&[command, &["--snapshot", path]].concat());
    for command in [&["capacity", "-o", "json"][..], &["lint", "-A"], &["verify", "-A"]] {
        let (text, denied) = count(&archive, command);
        assert!(!text.contains("acme") && !text.contains(NODE), "{text}");
        assert_eq!(denied, count(&cluster, command).1, "{command:?}");
    }
    let shapes = |path: &str| -> Value {
        serde_json::from_str::<Value>(&count(path, &["capacity", "-o", "json"]).0).unwrap()
    };
    let numbers = |answer: &Value| -> Vec<Value> {
        let shapes = answer["shapes"].as_array().unwrap();
        shapes.iter().flat_map(|it| [it["fitNow"].clone(), it["fitEmpty"].clone()]).collect()
    };
    assert_eq!(numbers(&shapes(&archive)), numbers(&shapes(&cluster)));
}

#[test]
fn changes_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let before = cluster(folder.path());
    let text = fs::read_to_string(&before).unwrap();
    let after = folder.path().join("after.json");
    let text = text.replace("pci-0103-00-00-0\",\"driver\"", "pci-0104-00-00-0\",\"driver\"");
    let text = text.replace("\"name\":\"waits\"", "\"name\":\"other\"");
    fs::write(&after, text).unwrap();
    let after = after.display().to_string();
    insta::assert_snapshot!(run(&["diff", &before, &after]).0);
    let (json, _) = run(&["diff", &before, &after, "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["objects"].as_array().unwrap().len(), 3, "{json}");
}

/// Human-readable output about nodes, fabrics and the cluster.
#[test]
fn tables_of_nodes_and_fabrics() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(folder.path());
    let mut text = String::new();
    for command in [&["top"][..], &["top", "-o", "wide"], &["fabric"], &["lint", "-A"]] {
        writeln!(text, "$ {}", command.join(" ")).unwrap();
        text += &run(&[command, &["--snapshot", &cluster]].concat()).0;
    }
    insta::assert_snapshot!(text);
}

#[test]
fn shells_and_kubectl_complete_command_lines() {
    for shell in ["bash", "fish", "powershell", "zsh"] {
        let (text, _) = run(&["completion", shell]);
        assert!(text.contains("capacity") && text.contains("kubectl-dranet"), "{shell}: {text}");
    }
    let complete = |words: &[&str]| run(&[&["__complete", "--"], words].concat()).0;
    assert!(complete(&["ver"]).starts_with("verify\t"), "{}", complete(&["ver"]));
    assert_eq!(complete(&["plan", "--output", "y"]), "yaml\n:4\n");
    assert_eq!(complete(&["plan", "-f", ""]), ":0\n");
    assert!(complete(&["plan", "--fil"]).starts_with("--filename\t"));
    assert_eq!(complete(&["completion", "z"]), "zsh\n:4\n");
    assert!(!complete(&[""]).contains("__complete"));
}

#[test]
fn every_command_has_a_manual_page_and_help_with_examples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let (text, _) = run(&["man", "-o", &path]);
    let command = <Args as clap::CommandFactory>::command();
    for command in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        let name = command.get_name();
        assert!(text.contains(&format!("kubectl-dranet-{name}.1")), "{name}: {text}");
        let page = fs::read_to_string(folder.path().join(format!("kubectl-dranet-{name}.1")));
        assert!(page.unwrap().contains(".SH NAME"), "{name}");
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains(&format!("kubectl dranet {name}")), "{name}: {help}");
    }
}
