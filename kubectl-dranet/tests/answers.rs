//! Answers to people who are in trouble: why a pod waits, in words, whatever keeps it. On the
//! example's GB300 node: four GPUs and four NICs, two of each on each NUMA node.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;
use topology_graph::fixture::{machine, plant, with_virtual_functions};
use topology_graph::{HostRoot, NodeTopology, PciAddress, PciFunction, Topology, read};

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

/// A rule is followed by every command that knows devices; the taint ends with the rule.
#[test]
fn taint_rules_are_followed() {
    let all = taint_rule(&json!({ "driver": "gpu.nvidia.com", "pool": NODE }));
    let cluster = Cluster::of(&[all], |_| {});
    insta::assert_snapshot!(cluster.run(&["top"]) + &cluster.run(&["capacity"]));
    let mut older = taint_rule(&json!({ "device": "gpu-0" }));
    older["apiVersion"] = "resource.k8s.io/v1beta2".into();
    let one = Cluster::of(&[older], |_| {});
    assert!(one.run(&["top"]).contains("3/4"), "{}", one.run(&["top"]));
    let none = taint_rule(&Value::Null);
    assert!(Cluster::of(&[none], |_| {}).run(&["top"]).contains("4/4"));
}

/// The GPUs as NVIDIA's driver publishes them with `--consumable-shares=2`.
fn publish_shares() -> impl Fn(&mut Value) {
    devices("gpu.nvidia.com", |gpu| {
        gpu["allowMultipleAllocations"] = true.into();
        gpu["capacity"] = json!({
            "memory": { "value": "284208Mi", "requestPolicy": {
                "default": "0", "validRange": { "min": "0", "max": "284208Mi" },
            } },
            "shares": { "value": "2", "requestPolicy": {
                "default": "1", "validRange": { "min": "1", "max": "2", "step": "1" },
            } },
        });
    })
}

/// A GPU of which a partition or a share is in use is not free; what is left of a shared one is said.
#[test]
fn gpus_that_are_in_use_in_part_are_not_free() {
    let mig = "../admission/tests/fleets/mig.gz";
    let args = ["kubectl-dranet", "top", "--snapshot", mig];
    let top = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap();
    let divided = "MIG\n".to_owned() + &top.text;
    let share = |index: usize, gpu: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": format!("share-{index}"), "namespace": "team" },
            "spec": { "devices": { "requests": [
                { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
            ] } },
            "status": { "allocation": { "devices": { "results": [{
                "request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": gpu,
                "shareID": format!("00000000-0000-4000-8000-00000000000{index}"),
                "consumedCapacity": { "memory": "0", "shares": "1" },
            }] } } },
        })
    };
    // GPU 0 has a share left, GPU 1 has none.
    let claims = [share(0, "gpu-0"), share(1, "gpu-1"), share(2, "gpu-1")];
    let shared = Cluster::of(&claims, publish_shares());
    let said = shared.run(&["top"]) + &shared.run(&["top", "-o", "json"]);
    let said = said
        + &shared.run(&["capacity", "--shape", "1gpu:1nic"])
        + &shared.of_file("simulate", &pair());
    // Two claims share GPU 1, and one each of the others.
    let all = [&claims[..], &[share(3, "gpu-2"), share(4, "gpu-3")]].concat();
    let full = Cluster::of(&all, publish_shares());
    let said =
        said + &full.of_file("explain", &pair()) + &full.run(&["capacity", "--shape", "1gpu:1nic"]);
    insta::assert_snapshot!(divided + "shares\n" + &said);
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
        "{NODE} does not publish rail4 (pci-0105-00-00-0): no-driver since 2026-11-20T02:14:00Z.\n"
    );
    let text = explained("Unexpected", true);
    assert!(text.contains("fits on none") && text.contains(&told), "{text}");
    let text = explained("Expected", true);
    assert!(!text.contains("does not publish"), "{text}");
    let text = explained("Unexpected", false);
    assert!(!text.contains("does not publish"), "it fits: {text}");
}

/// A node whose ports have two virtual functions each, one of which is in use, and a port both of whose
/// functions are in use.
fn node_with_functions() -> Vec<Value> {
    let root = tempfile::tempdir().unwrap();
    plant(machine("x86-one-per-switch").unwrap(), root.path()).unwrap();
    let snapshot = with_virtual_functions(read(&HostRoot::at(root.path())).unwrap(), 2);
    let (topology, _) = Topology::build(&snapshot, None);
    let graph = serde_json::to_value(NodeTopology::new("vfs", topology.to_spec())).unwrap();
    let functions = snapshot.pci.iter().filter(|it| it.physical_function.is_some());
    let name =
        |address: PciAddress| format!("pci-{}", address.to_string().replace([':', '.'], "-"));
    let device = |function: &PciFunction| {
        json!({ "name": name(function.address), "attributes": {
            "resource.kubernetes.io/pciBusID": { "string": function.address.to_string() },
            "dra.net/rdma": { "bool": true },
        } })
    };
    let all: Vec<_> = functions.collect();
    let held = [all[0], all[2], all[3]].map(|function| {
        json!({ "request": "r", "driver": "dra.net", "pool": "vfs", "device": name(function.address) })
    });
    vec![
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "vfs" } }),
        graph,
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": { "name": "vfs-dra.net" },
            "spec": {
                "driver": "dra.net", "nodeName": "vfs",
                "pool": { "name": "vfs", "generation": 1, "resourceSliceCount": 1 },
                "devices": all.into_iter().map(device).collect::<Vec<_>>(),
            },
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": "held", "namespace": "other" },
            "spec": { "devices": { "requests": [] } },
            "status": { "allocation": { "devices": { "results": held } } },
        }),
    ]
}

/// Virtual functions of one port are one NIC: their pods share its link.
#[test]
fn top_counts_ports() {
    let cluster = Cluster::of(&node_with_functions(), |_| {});
    let line = |text: String| text.lines().find(|it| it.starts_with("vfs")).unwrap().to_owned();
    let words = line(cluster.run(&["top"]));
    assert!(words.contains("8/9 (15/18 functions)"), "{words}");
    let text = cluster.run(&["top", "-o", "json"]);
    let json: Value = serde_json::from_str(text.split("exit code").next().unwrap()).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    let of = |name: &str| nodes.iter().find(|it| it["name"] == name).unwrap()["nics"].clone();
    assert_eq!(
        of("vfs"),
        json!({ "free": 8, "partly": 0, "unusable": 0, "all": 9,
                "functions": { "free": 15, "partly": 0, "unusable": 0, "all": 18 } })
    );
    assert_eq!(of(NODE)["functions"], Value::Null);
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

/// GPUs of two vendors are counted separately.
#[test]
fn capacity_counts_gpus_of_each_driver() {
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": "amd" },
        "spec": {
            "driver": "gpu.amd.com",
            "nodeName": "amd-0",
            "pool": { "name": "amd-0", "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "gpu-0", "attributes": {
                "type": { "string": "amdgpu" },
                "resource.kubernetes.io/pciBusID": { "string": "0000:05:00.0" },
            } }],
        },
    });
    let expression = "device.driver == \"gpu.amd.com\"";
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "gpu.amd.com" },
        "spec": { "selectors": [{ "cel": { "expression": expression } }] },
    });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "amd-0" } });
    let cluster = Cluster::of(&[slice, class, node], |_| {});
    let one = ["capacity", "--shape", "1gpu:1nic"];
    let text = cluster.run(&one);
    assert!(text.contains("1gpu:1nic of gpu.nvidia.com"), "{text}");
    insta::assert_snapshot!(text);
    let named = cluster.run(&[&one[..], &["--gpu-class", "gpu.nvidia.com"]].concat());
    assert!(named.contains("largest aligned pod with GPUs of gpu.nvidia.com"), "{named}");
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
             claim needs 1.\nIts claim fits on 1 of 1 node now.\n"
        );
        assert!(text.contains(&expected) && text.ends_with("exit code 3\n"), "{text}");
        let enough = Cluster::of(&[quota(key, "1")], |_| {}).of_file("explain", &pair());
        assert!(enough.ends_with("exit code 0\n"), "{enough}");
    }
    // A pod without a namespace is in `default`.
    let mut nowhere = pair();
    nowhere["metadata"].as_object_mut().unwrap().remove("namespace");
    let key = "count/resourceclaims.resource.k8s.io";
    let text = Cluster::of(&[quota(key, "0")], |_| {}).of_file("explain", &nowhere);
    assert!(text.contains("quota `team` refuses its claim"), "{text}");
}

/// Nothing fits on a node that takes no pods, and `capacity` says so.
#[test]
fn closed_nodes_have_no_capacity_now() {
    let shape = ["capacity", "--shape", "1gpu:1nic"];
    let of = |spec: Value, status: Value| {
        let change = move |object: &mut Value| {
            if object["kind"] == "Node" {
                object["spec"] = spec.clone();
                object["status"] = status.clone();
            }
        };
        Cluster::of(&[], change)
    };
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let open = of(json!({}), ready.clone()).run(&shape);
    assert!(!open.contains("takes no") && !open.contains("cordoned"), "{open}");
    let not_ready = json!({ "conditions": [{ "type": "Ready", "status": "False" }] });
    for closed in [of(json!({ "unschedulable": true }), ready), of(json!({}), not_ready)] {
        let text = closed.run(&shape);
        assert!(text.contains("is cordoned or not ready, so no pod fits there now"), "{text}");
        let json: Value = serde_json::from_str(
            closed.run(&[&shape[..], &["-o", "json"]].concat()).rsplit_once("exit").unwrap().0,
        )
        .unwrap();
        assert_eq!(json["shapes"][0]["fitNow"], 0, "{json}");
        assert!(json["shapes"][0]["fitEmpty"].as_u64() > Some(0), "{json}");
    }
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
        assert!(text.contains(plural), "{plural}: {text}");
    }
}
