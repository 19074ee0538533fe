//! Answers to people who are in trouble: why a pod waits, in words, whatever keeps it. On the
//! example's GB300 node: four GPUs and four NICs, two of each on each NUMA node.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "answers/amounts.rs"]
mod amounts;
#[path = "answers/filled.rs"]
mod filled;
#[path = "answers/inputs.rs"]
mod inputs;
#[path = "answers/now.rs"]
mod now;
#[path = "answers/rollouts.rs"]
mod rollouts;
#[path = "answers/scheduler.rs"]
mod scheduler;
#[path = "answers/verdicts.rs"]
mod verdicts;

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// A folder with a cluster, and room for files with pods.
struct Cluster(TempDir);

impl Cluster {
    /// The example with changed objects and additional ones.
    fn of(more: &[Value], change: impl Fn(&mut Value)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
        objects.iter_mut().for_each(change);
        objects.extend_from_slice(more);
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        fs::write(folder.path().join("cluster.json"), list.to_string()).unwrap();
        Self(folder)
    }

    /// The output, notes, and the exit code, or the error.
    fn run(&self, args: &[&str]) -> String {
        let cluster = self.0.path().join("cluster.json").display().to_string();
        let args = [&["kubectl-dranet"], args, &["--snapshot", &cluster]].concat();
        match kubectl_dranet::run(&Args::try_parse_from(args).unwrap()) {
            Ok(output) => {
                let notes = output.notes.iter().map(|note| format!("note: {note}\n"));
                let code = if output.denied { 3 } else { 0 };
                format!("{}{}exit code {code}\n", output.text, notes.collect::<String>())
            }
            Err(error) => format!("error: {}\n", process::exit::one_line(&error)),
        }
    }

    /// The output for an object in a file.
    fn of_file(&self, command: &str, object: &Value) -> String {
        let file = self.0.path().join("asked.txt");
        fs::write(&file, object.to_string()).unwrap();
        self.run(&[command, "-f", &file.display().to_string()])
    }
}

/// A text on one line.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A pod with this many GPUs and NICs, and more fields in its container's resources.
fn pod(annotations: &Value, resources: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "new", "namespace": "default", "annotations": annotations },
        "spec": { "containers": [{ "name": "main", "image": "main", "resources": resources }] },
    })
}

fn pair() -> Value {
    pod(&json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" }), &json!({}))
}

/// Changes the example's node.
fn node(change: impl Fn(&mut Value)) -> impl Fn(&mut Value) {
    move |object| {
        if object["kind"] == "Node" {
            object["status"]["allocatable"] = json!({ "cpu": "64", "memory": "1Ti", "pods": "9" });
            change(object);
        }
    }
}

/// Changes the example's devices of a driver.
fn devices(driver: &'static str, change: impl Fn(&mut Value)) -> impl Fn(&mut Value) {
    move |object| {
        if object["kind"] == "ResourceSlice" && object["spec"]["driver"] == driver {
            object["spec"]["devices"].as_array_mut().unwrap().iter_mut().for_each(&change);
        }
    }
}

fn taint_rule(selector: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": { "name": "broken" },
        "spec": {
            "deviceSelector": selector,
            "taint": {
                "key": "example.com/broken", "effect": "NoSchedule",
                "timeAdded": "2026-11-20T02:14:00Z",
            },
        },
    })
}

/// Everything that keeps a pod off a node is named by `explain` as by `simulate`.
#[test]
fn explain_and_simulate_name_what_keeps_a_pod_off_its_node() {
    let ready = json!([{
        "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-20T02:14:00Z",
    }]);
    let taints = json!([{ "key": "sku", "value": "gpu", "effect": "NoSchedule" }]);
    let large = pod(
        &json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" }),
        &json!({ "limits": { "cpu": "1000" } }),
    );
    let cases = [
        (Cluster::of(&[], node(|it| it["spec"]["unschedulable"] = true.into())), pair()),
        (Cluster::of(&[], node(move |it| it["status"]["conditions"] = ready.clone())), pair()),
        (Cluster::of(&[], node(move |it| it["spec"]["taints"] = taints.clone())), pair()),
        (Cluster::of(&[], node(|_| {})), large),
        (Cluster::of(&[taint_rule(&json!({ "driver": "gpu.nvidia.com" }))], |_| {}), pair()),
    ];
    let mut text = String::new();
    for (cluster, pod) in cases {
        let simulated = cluster.of_file("simulate", &pod);
        let explained = cluster.of_file("explain", &pod);
        assert!(simulated.contains("0 pods placed, 1 not"), "{simulated}");
        text += &(explained + "---\n");
    }
    insta::assert_snapshot!(text);
}

/// NICs that are down are named as people name them, with the time.
#[test]
fn nics_that_are_down_are_named_in_words() {
    let down = |names: &'static [&'static str]| {
        devices("dra.net", move |device| {
            let name = device["attributes"]["dra.net/rdmaDevice"]["string"].clone();
            if names.iter().any(|down| name == **down) {
                device["attributes"]["dranet.io/portState"] = json!({ "string": "Down" });
                device["taints"] = json!([{
                    "key": "dranet.io/port-down", "effect": "NoSchedule",
                    "timeAdded": "2026-11-20T02:14:00Z",
                }]);
            }
        })
    };
    let three = pod(&json!({ "dranet.io/aligned-nics": "2", "dranet.io/gpus": "1" }), &json!({}));
    let all = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"].as_slice();
    let mut text = String::new();
    for (names, pod) in [(&all[1..3], &three), (all, &pair()), (all, &three)] {
        let cluster = Cluster::of(&[], down(names));
        text += &cluster.of_file("explain", pod);
        text += "---\n";
    }
    let cluster = Cluster::of(&[], down(&all[1..3]));
    text += &cluster.run(&["top", "-o", "wide"]);
    insta::assert_snapshot!(text);
}

/// The driver says which NICs it does not publish; what the host needs is nobody's trouble.
#[test]
fn nics_that_are_not_published_are_named() {
    let explained = |reason: &'static str, is_down: bool| {
        let down = devices("dra.net", move |device| {
            if is_down {
                device["attributes"]["dranet.io/portState"] = json!({ "string": "Down" });
            }
        });
        let withheld = move |object: &mut Value| {
            down(object);
            if object["kind"] == "NodeTopology" {
                object["status"] = json!({ "conditions": [{
                    "type": "NICsWithheld", "status": "True", "reason": reason,
                    "message": "rail4 (pci-0105-00-00-0): no-driver since 2026-11-20T02:14:00Z",
                    "lastTransitionTime": "2026-11-20T02:14:00Z",
                }] });
            }
        };
        Cluster::of(&[], withheld).of_file("explain", &pair())
    };
    let told = format!(
        "{NODE} does not publish rail4 (pci-0105-00-00-0): no-driver since 2026-11-20T02:14:00Z."
    );
    let text = explained("Unexpected", true);
    assert!(text.contains("fits on none") && joined(&text).contains(&told), "{text}");
    let text = explained("Expected", true);
    assert!(!text.contains("does not publish"), "{text}");
    let text = explained("Unexpected", false);
    assert!(!text.contains("does not publish"), "it fits: {text}");
}

/// Users write annotations, so that is what answers are about, also for pods of the cluster.
#[test]
fn pods_of_the_cluster_get_answers_about_annotations() {
    let cluster = Cluster::of(&[], |_| {});
    let asked = json!({ "dranet.io/aligned-nics": "4", "dranet.io/gpus": "4" });
    let file = cluster.0.path().join("asked.txt");
    fs::write(&file, pod(&asked, &json!({})).to_string()).unwrap();
    let planned = cluster.run(&["plan", "-f", &file.display().to_string(), "-o", "yaml"]);
    let planned = planned.rsplit_once("exit code").unwrap().0.to_owned();
    let planned = planned.split("note: ").next().unwrap();
    let planned = cluster_model::snapshot::parse(planned, "plan.yaml".as_ref()).unwrap();
    let [mut template, mut live] = <[Value; 2]>::try_from(planned).unwrap();
    template["metadata"]["namespace"] = "default".into();
    live["metadata"]["uid"] = "1".into();
    let held = json!([{
        "request": "r", "driver": "dra.net", "pool": NODE, "device": "pci-0101-00-00-0",
    }]);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": "held", "namespace": "other" },
        "spec": { "devices": { "requests": [] } },
        "status": {
            "allocation": { "devices": { "results": held } },
            "reservedFor": [{ "resource": "pods", "name": "train-0", "uid": "2" }],
        },
    });
    let quota = |hard: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": { "name": "gpus", "namespace": "default" },
            "spec": { "hard": { "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": hard } },
            "status": { "used": { "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "2" } },
        })
    };
    let busy = Cluster::of(&[template.clone(), live.clone(), claim], |_| {});
    let refused = Cluster::of(&[template, live, quota("4")], |_| {});
    let text = busy.run(&["explain", "pod/new"]) + "---\n" + &refused.run(&["explain", "pod/new"]);
    assert!(!text.contains("without the selector"), "{text}");
    insta::assert_snapshot!(text);
}

/// Mistakes in a file that would otherwise have no effect.
#[test]
fn common_mistakes_are_named() {
    let cluster = Cluster::of(&[], |_| {});
    let misspelt = pod(&json!({ "dranet.io/aligned-nic": "1" }), &json!({}));
    let unquoted = pod(&json!({ "dranet.io/aligned-nics": 2 }), &json!({}));
    let beside = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "train", "annotations": { "dranet.io/aligned-nics": "1" } },
        "spec": { "template": { "spec": { "containers": [{ "name": "main" }] } } },
    });
    let workflow = json!({
        "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": { "name": "w" },
              "spec": { "templates": [{ "container": { "name": "main" } }] } },
            { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" } },
            pair(),
        ],
    });
    let text = cluster.of_file("explain", &misspelt)
        + &cluster.of_file("plan", &unquoted)
        + &cluster.of_file("explain", &beside)
        + &cluster.of_file("explain", &workflow);
    insta::assert_snapshot!(text);
}

/// The documented form, for every kind: the pods of a workload have an owner.
#[test]
fn workloads_on_one_fabric_are_planned_and_simulated() {
    let template = json!({
        "metadata": { "annotations": {
            "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1", "dranet.io/fabric": "same",
        } },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    });
    let group = json!({ "workerTemplate": template, "size": 2 });
    let ray = json!({ "workerGroupSpecs": [
        { "groupName": "a", "replicas": 2, "template": template },
        { "groupName": "b", "replicas": 1, "template": template },
    ] });
    let kinds = [
        ("Job", json!({ "parallelism": 2, "template": template })),
        ("StatefulSet", json!({ "replicas": 2, "template": template })),
        ("RayJob", json!({ "rayClusterSpec": ray })),
        (
            "PyTorchJob",
            json!({ "pytorchReplicaSpecs": {
            "Master": { "replicas": 1, "template": template },
            "Worker": { "replicas": 2, "template": template },
        } }),
        ),
        ("LeaderWorkerSet", json!({ "replicas": 2, "leaderWorkerTemplate": group })),
        ("Job", json!({ "parallelism": 5, "template": template })),
    ];
    // The fabric of the node's NICs counts, although its label is absent.
    let without_label = |object: &mut Value| {
        if object["kind"] == "Node" {
            object["status"]["allocatable"] = json!({ "cpu": "64", "pods": "9" });
        }
        if object["kind"] == "NodeTopology" {
            object["spec"]["fabric"] = "ib-7".into();
        }
    };
    let cluster = Cluster::of(&[], without_label);
    let mut text = String::new();
    for (kind, spec) in kinds {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": "train" },
            "spec": spec,
        });
        text += &cluster.of_file("simulate", &object);
        let planned = cluster.of_file("plan", &object);
        assert!(!planned.contains("denied"), "{planned}");
    }
    insta::assert_snapshot!(text);
}

/// Where no device plugin offers it, a class stands for an extended resource.
#[test]
fn extended_resources_of_classes_are_scheduled() {
    let class = |object: &mut Value| {
        if object["kind"] == "DeviceClass" && object["metadata"]["name"] == "gpu.nvidia.com" {
            object["spec"]["extendedResourceName"] = "nvidia.com/gpu".into();
        }
        if object["kind"] == "Node" {
            object["status"]["allocatable"] = json!({ "cpu": "64", "pods": "9" });
        }
    };
    let cluster = Cluster::of(&[], class);
    let job = |gpus: &str, pods: u32| {
        let resources = json!({ "limits": { "nvidia.com/gpu": gpus } });
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": "plain" },
            "spec": { "parallelism": pods, "template": {
                "spec": { "containers": [{ "name": "main", "resources": resources }] },
            } },
        })
    };
    insta::assert_snapshot!(cluster.of_file("simulate", &job("3", 2)));
    assert!(cluster.of_file("explain", &job("3", 1)).contains("fits on 1 of 1 node"));
    // Older schedulers do not know it.
    let cluster_file = cluster.0.path().join("asked.txt").display().to_string();
    let args = ["simulate", "-f", &cluster_file, "--kubernetes-version", "1.35"];
    assert!(cluster.run(&args).contains("too little `nvidia.com/gpu`"), "{}", cluster.run(&args));
}

/// Every file of `deploy/examples/workloads` is admitted on a node with a fabric.
#[test]
fn examples_of_workloads_are_admitted() {
    let cluster = Cluster::of(&[], |object| {
        if object["kind"] == "Node" {
            object["metadata"]["labels"]["topology.dranet.io/fabric"] = "ib-7".into();
            object["status"]["allocatable"] = json!({ "cpu": "64", "pods": "9" });
        }
    });
    let mut count = 0;
    for entry in fs::read_dir("../deploy/examples/workloads").unwrap() {
        let path = entry.unwrap().path().display().to_string();
        let text = cluster.run(&["plan", "-f", &path]);
        assert!(text.contains("Admitted: ") && text.ends_with("exit code 0\n"), "{path}: {text}");
        count += 1;
    }
    assert!(count >= 8, "{count}");
}

/// At 80 columns nothing wraps, as far as names allow.
#[test]
fn a_plan_is_one_screen() {
    let file = "../deploy/examples/aks-gb300/2nic-aligned.yaml";
    let args = ["kubectl-dranet", "plan", "-f", file, "--snapshot", EXAMPLE];
    let text = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap().text;
    assert!(text.starts_with("Admitted: GPU0 with mlx5_0 and mlx5_1 (NODE), on 1 of 1 node now\n"));
    assert!(text.lines().count() < 24, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// A quota also refuses the claim that admission writes for a pod in a file.
#[test]
fn quotas_refuse_the_claims_of_pods_in_files() {
    let quota = |key: &str, hard: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": { "name": "team", "namespace": "default" },
            "spec": { "hard": { key: hard } },
            "status": { "used": { key: "0" } },
        })
    };
    for key in [
        "count/resourceclaims.resource.k8s.io",
        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices",
    ] {
        let text = Cluster::of(&[quota(key, "0")], |_| {}).of_file("explain", &pair());
        let expected = format!(
            "waits: quota `team` refuses its claim: {key} is limited to 0, 0 are in use, and the \
             claim needs 1. Its claim fits on 1 of 1 node now."
        );
        assert!(joined(&text).contains(&expected) && text.ends_with("exit code 3\n"), "{text}");
        let enough = Cluster::of(&[quota(key, "1")], |_| {}).of_file("explain", &pair());
        assert!(enough.ends_with("exit code 0\n"), "{enough}");
    }
    // A pod without a namespace is in `default`.
    let mut nowhere = pair();
    nowhere["metadata"].as_object_mut().unwrap().remove("namespace");
    let key = "count/resourceclaims.resource.k8s.io";
    let text = Cluster::of(&[quota(key, "0")], |_| {}).of_file("explain", &nowhere);
    assert!(joined(&text).contains("quota `team` refuses its claim"), "{text}");
}

/// What holds for several nodes is said of several.
#[test]
fn several_nodes_have_verbs_in_the_plural() {
    let second: Vec<Value> = cluster_model::snapshot::objects(EXAMPLE.as_ref())
        .unwrap()
        .into_iter()
        .filter(|object| object["kind"] == "Node")
        .map(|mut node| {
            node["metadata"]["name"] = "second".into();
            node
        })
        .collect();
    for (spec, status, plural) in [
        (json!({ "unschedulable": true }), json!({}), "): are cordoned; "),
        (
            json!({ "taints": [{ "key": "sku", "effect": "NoSchedule" }] }),
            json!({}),
            "): have the taint sku, which ",
        ),
        (
            json!({}),
            json!({ "conditions": [{ "type": "Ready", "status": "False" }] }),
            "): are not ready",
        ),
        (
            json!({}),
            json!({ "allocatable": { "cpu": "1", "pods": "9" } }),
            "): have too little `cpu`, also when they are empty",
        ),
    ] {
        let change = |node: &mut Value| {
            if node["kind"] == "Node" {
                node["spec"] = spec.clone();
                node["status"] = status.clone();
            }
        };
        let mut second = second.clone();
        second.iter_mut().for_each(change);
        let mut asks = pair();
        asks["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "2" } });
        let text = Cluster::of(&second, change).of_file("explain", &asks);
        assert!(joined(&text).contains(plural.trim_end()), "{plural}: {text}");
    }
}
