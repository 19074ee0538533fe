//! What people are told of priorities: `explain`, `simulate --preemption` and `defrag`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use cluster_model::snapshot::objects;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";
const GPUS: [&str; 4] = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"];

/// A snapshot, and a pod that asks for devices.
struct Scene(TempDir);

impl Scene {
    fn new(more: &[Value], asked: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut all = objects(Path::new(EXAMPLE)).unwrap();
        for object in all.iter_mut().filter(|object| object["kind"] == "Node") {
            object["status"] = json!({"allocatable": {"cpu": "8", "pods": "110"}});
        }
        all.extend_from_slice(more);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
        fs::write(folder.path().join("cluster.json"), list.to_string()).unwrap();
        fs::write(folder.path().join("pod.json"), asked.to_string()).unwrap();
        Self(folder)
    }

    /// The output of a command on the pod, on one line, with the exit code.
    fn run(&self, args: &[&str]) -> String {
        let pod = self.0.path().join("pod.json").display().to_string();
        self.list(&[args, &["-f", &pod]].concat())
    }

    /// The same of a command on the cluster.
    fn list(&self, args: &[&str]) -> String {
        let cluster = self.0.path().join("cluster.json").display().to_string();
        let all = [&["kubectl-dranet"], args, &["--snapshot", &cluster]].concat();
        match kubectl_dranet::run(&Args::try_parse_from(all).unwrap()) {
            Ok(output) => {
                let words: Vec<&str> = output.text.split_whitespace().collect();
                format!("{} [{}]", words.join(" "), if output.denied { 3 } else { 0 })
            }
            Err(error) => format!("error: {}", process::exit::one_line(&error)),
        }
    }
}

/// A pod that asks for GPUs and as many NICs.
fn asked(priority: i32, count: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "high", "namespace": "default", "annotations": {
            "dranet.io/aligned-nics": count.to_string(), "dranet.io/gpus": count.to_string(),
        }},
        "spec": {"priority": priority, "containers": [{"name": "main", "image": "main"}]},
    })
}

/// A pod that has these GPUs of a node, with its claim.
fn running(name: &str, (priority, node): (i32, &str), gpus: &[&str]) -> [Value; 2] {
    let results = gpus.iter().map(
        |gpu| json!({"request": "gpus", "driver": "gpu.nvidia.com", "pool": node, "device": gpu}),
    );
    [
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": format!("{name}-gpus"), "namespace": "batch"},
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {
                "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount",
                "count": gpus.len(),
            }}]}},
            "status": {
                "allocation": {"devices": {"results": results.collect::<Vec<_>>()}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "batch", "uid": name, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"dranet.io/movable": "true"},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "1", "controller": true},
                ],
            },
            "spec": {
                "nodeName": node, "priority": priority,
                "containers": [{"name": "main", "image": "main"}],
                "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
            },
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
                "resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": format!("{name}-gpus")}],
            },
        }),
    ]
}

fn preemptor() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "preemptor", "namespace": "dranet-system"},
        "spec": {"template": {"spec": {"containers": []}}},
    })
}

#[test]
fn explain_names_who_would_be_evicted() {
    let low = running("low", (1, NODE), &GPUS);
    let told = Scene::new(&low, &asked(100, 1)).run(&["explain"]);
    for part in [
        "With preemptor (`preemption.enabled` of the chart), pod batch/low (priority 1) would be \
         evicted for it, and it would run on aks-gpu-45139532-vmss000081.",
        "by pod batch/low of priority 1",
        "[3]",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let mut installed = low.to_vec();
    installed.push(preemptor());
    let told = Scene::new(&installed, &asked(100, 1)).run(&["explain"]);
    let part = "Preemptor evicts pod batch/low (priority 1) for it, and then it runs on";
    assert!(told.contains(part), "{told}");
    let told = Scene::new(&installed, &asked(1, 1)).run(&["explain"]);
    assert!(!told.contains("reemptor"), "{told}");
}

#[test]
fn top_names_pods_of_lower_priority_than_one_that_waits() {
    let waiting = |priority: i32| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "high", "namespace": "batch"},
            "spec": {
                "priority": priority, "containers": [{"name": "main", "image": "main"}],
                "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
            },
        })
    };
    let told = |priority: i32| {
        let mut more = running("low", (1, NODE), &GPUS[..2]).to_vec();
        more.extend(running("mid", (7, NODE), &GPUS[2..]));
        more.push(waiting(priority));
        Scene::new(&more, &asked(0, 1)).list(&["top", "--once"])
    };
    let text = told(8);
    let part = "pod batch/high of priority 8 waits for devices; pods of lower priority have some: \
                aks-gpu-45139532-vmss000081: batch/low (priority 1) and batch/mid (priority 7)";
    assert!(text.contains(part), "{text}");
    assert!(!told(7).contains("batch/mid"), "{}", told(7));
    assert!(!told(1).contains("waits"), "{}", told(1));
}

#[test]
fn explain_names_the_budget_that_forbids_it() {
    let mut more = running("low", (1, NODE), &GPUS).to_vec();
    more.push(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "batch"},
        "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0},
    }));
    let told = Scene::new(&more, &asked(100, 1)).run(&["explain"]);
    let part = "Preemptor evicts nobody for it: a PodDisruptionBudget forbids to evict pods of lower \
                priority: batch/keep.";
    assert!(told.contains(part), "{told}");
}

/// A group that waits for a fabric on which a pod of lower priority has a GPU.
#[test]
fn fabric_names_who_would_be_evicted_for_a_group() {
    let mut more = running("low", (1, NODE), &GPUS[..1]).to_vec();
    let mut pod = asked(100, 4);
    let metadata = json!({
        "name": "high", "namespace": "default", "uid": "high", "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"dranet.io/fabric-group": "train"},
        "annotations": {"dranet.io/fabric": "train", "dranet.io/fabric-size": "1"},
    });
    pod["metadata"] = metadata;
    pod["spec"]["schedulingGates"] = json!([{"name": "dranet.io/fabric"}]);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpus", "resourceClaimName": "high"}]);
    more.push(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "high", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {
            "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 4,
        }}]}},
    }));
    more.push(pod);
    let mut objects = objects(Path::new(EXAMPLE)).unwrap();
    for object in objects.iter_mut().filter(|object| object["kind"] == "Node") {
        object["metadata"]["labels"]["topology.dranet.io/fabric"] = "ib-7".into();
        object["status"] = json!({"allocatable": {"cpu": "8", "pods": "110"}});
    }
    objects.extend(more);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.json");
    fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
        .unwrap();
    let path = path.display().to_string();
    let args = ["kubectl-dranet", "fabric", "--snapshot", &path];
    let text = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap().text;
    let words: Vec<&str> = text.split_whitespace().collect();
    let told = words.join(" ");
    assert!(told.contains("pod batch/low (priority 1) would be evicted for it"), "{told}");
}

#[test]
fn simulate_evicts_for_devices_if_asked_to() {
    let low = running("low", (1, NODE), &GPUS);
    let scene = Scene::new(&low, &asked(100, 1));
    assert!(scene.run(&["simulate"]).ends_with("[3]"));
    let told = scene.run(&["simulate", "--preemption"]);
    assert!(told.ends_with("[0]") && told.contains("batch/low"), "{told}");
    let scene = Scene::new(&low, &asked(1, 1));
    assert!(scene.run(&["simulate", "--preemption"]).ends_with("[3]"));
}

/// A second machine like the first one, with another name.
fn second() -> Vec<Value> {
    let text = serde_json::to_string(&objects(Path::new(EXAMPLE)).unwrap()).unwrap();
    let other: Vec<Value> = serde_json::from_str(&text.replace(NODE, "second")).unwrap();
    let kinds = ["Node", "ResourceSlice", "NodeTopology"];
    let mut other: Vec<Value> = other
        .into_iter()
        .filter(|it| {
            kinds.contains(&it["kind"].as_str().unwrap()) && it.to_string().contains("second")
        })
        .collect();
    for object in &mut other {
        let name = object["metadata"]["name"].as_str().unwrap();
        if !name.contains("second") {
            object["metadata"]["name"] = format!("second-{name}").into();
        }
        if object["kind"] == "Node" {
            object["status"] = json!({"allocatable": {"cpu": "8", "pods": "110"}});
        }
    }
    other
}

#[test]
fn defrag_moves_pods_to_free_places() {
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": "batch"},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}}},
    });
    let mut more = second();
    more.push(template);
    more.extend(running("one", (0, NODE), &GPUS[..1]));
    more.extend(running("two", (0, "second"), &GPUS[..2]));
    let scene = Scene::new(&more, &asked(0, 4));
    let told = scene.run(&["defrag"]);
    let expected = format!(
        "Pod high fits on {NODE} after 1 move: 1. pod batch/one of StatefulSet web (1 device) from \
         {NODE} to second [0]"
    );
    assert_eq!(told, expected);
    assert_eq!(
        scene.run(&["defrag", "--count", "2"]),
        "2 pods of Pod high: no plan of at most 6 moves of the 2 pods that may be moved was found. [3]"
    );
    let told = scene.run(&["defrag", "-o", "json"]);
    assert!(told.contains("\"from\":") && told.contains("\"movable\": 2"), "{told}");
    let fits = Scene::new(&second(), &asked(0, 4)).run(&["defrag"]);
    assert!(fits.contains("fits now, on") && fits.ends_with("nothing has to move. [0]"), "{fits}");
}
