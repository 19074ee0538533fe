//! Where `simulate` places pods on GB300 nodes with four GPUs and four NICs each, two of
//! each on each NUMA node.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// A folder with a cluster and the pods to simulate.
struct Asked(TempDir);

impl Asked {
    /// The example with changed objects and additional ones.
    fn new(pods: &[Value], more: &[Value], change: impl Fn(&mut Value)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
        objects.iter_mut().for_each(change);
        objects.extend_from_slice(more);
        for (name, items) in [("cluster.json", &objects[..]), ("pods.json", pods)] {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
            fs::write(folder.path().join(name), list.to_string()).unwrap();
        }
        Self(folder)
    }

    /// The output with the exit code, or the error.
    fn run(&self, more: &[&str]) -> String {
        let path = |name: &str| self.0.path().join(name).display().to_string();
        let (pods, cluster) = (path("pods.json"), path("cluster.json"));
        let args = ["kubectl-dranet", "simulate", "-f", &pods, "--snapshot", &cluster];
        let args = Args::try_parse_from(args.iter().chain(more)).unwrap();
        match kubectl_dranet::run(&args) {
            Ok(output) => {
                format!("{}exit code {}\n", output.text, if output.denied { 3 } else { 0 })
            }
            Err(error) => format!("error: {}", process::exit::one_line(&error)),
        }
    }

    fn json(&self, more: &[&str]) -> Value {
        let text = self.run(&[more, &["-o", "json"]].concat());
        serde_json::from_str(text.rsplit_once("exit code").unwrap().0).unwrap()
    }
}

fn template(annotations: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["containers"] =
        json!([{ "name": "main", "image": "main", "resources": spec["resources"] }]);
    spec.as_object_mut().unwrap().remove("resources");
    json!({ "metadata": { "annotations": annotations }, "spec": spec })
}

/// A job of pods with this many GPUs and NICs.
fn job(name: &str, pods: u32, (gpus, nics): (u32, u32)) -> Value {
    let asked = json!({
        "dranet.io/aligned-nics": nics.to_string(), "dranet.io/gpus": gpus.to_string(),
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": { "parallelism": pods, "template": template(&asked, &json!({})) },
    })
}

/// A quota counts the claims of the pods before, and refuses those that go beyond it.
#[test]
fn quotas_refuse_claims() {
    let quota = |hard: &str, used: &str| {
        let key = "count/resourceclaims.resource.k8s.io";
        json!({
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": { "name": "team", "namespace": "default" },
            "spec": { "hard": { key: hard } },
            "status": { "hard": { key: hard }, "used": { key: used } },
        })
    };
    for (quota, placed) in [(quota("3", "0"), 2), (quota("3", "2"), 1), (quota("0", "0"), 0)] {
        let asked = Asked::new(&[job("small", 2, (1, 1))], &[quota], |_| {});
        let text = asked.run(&[]);
        assert_eq!(asked.json(&[])["placed"].as_array().unwrap().len(), placed, "{text}");
        assert_eq!(text.contains("quota `team` refuses"), placed < 2, "{text}");
    }
}

/// Two pairs fill a NUMA node. The third pod with two pairs has no place on this node,
/// but would fit on a second one.
#[test]
fn pods_are_placed_one_after_another() {
    let asked = Asked::new(&[job("small", 2, (1, 1)), job("large", 3, (2, 2))], &[], |_| {});
    insta::assert_snapshot!(asked.run(&[]));
    insta::assert_snapshot!(asked.run(&["--add-nodes", &format!("{NODE}=1")]));
    insta::assert_json_snapshot!(asked.json(&["--add-nodes", &format!("{NODE}=1")])["placed"][0]);
}

/// The first pod breaks a NUMA node; the next one of its kind joins it, and larger ones
/// get whole NUMA nodes. Without scores, each pod would get the first node by name.
#[test]
fn nodes_are_ranked_as_the_extender_ranks_them() {
    let pods = [job("a", 1, (1, 1)), job("b", 1, (4, 4)), job("c", 1, (1, 1)), job("d", 1, (2, 2))];
    let asked = Asked::new(&pods, &[], |_| {});
    let answer = asked.json(&["--add-nodes", &format!("{NODE}=1")]);
    let node = |index: usize| answer["placed"][index]["node"].as_str().unwrap().to_owned();
    assert_eq!(answer["pending"], json!([]));
    assert_ne!(node(0), node(1), "{answer}");
    assert_eq!((node(0), node(0)), (node(2), node(3)), "{answer}");
    assert_eq!(answer["placed"][2]["equalNodes"], json!([node(0)]));
}

/// A node of 8 CPUs without devices.
fn cpu_node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "pool": "cpu" } },
        "status": {
            "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "9" }, "images": [],
        },
    })
}

/// A pod for such nodes.
fn cpu_pod(name: &str, spec: &Value) -> Value {
    let requests = json!({ "cpu": "4", "memory": "1Gi" });
    let container = json!({ "name": "c", "image": "c", "resources": { "requests": requests } });
    let mut whole = json!({ "nodeSelector": { "pool": "cpu" }, "containers": [container] });
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": whole,
    })
}

/// kube-scheduler's own scores decide where scheduler-ext has none, and where its points are equal.
#[test]
fn the_best_nodes_are_those_of_kube_scheduler() {
    let nodes = || ["cpu-a", "cpu-b"].map(cpu_node).to_vec();
    let running = cpu_pod("running", &json!({ "nodeName": "cpu-a" }));
    let best = |more: &[Value]| {
        let answer = Asked::new(&[cpu_pod("asked", &json!({}))], more, |_| {}).json(&[]);
        let placed = &answer["placed"][0];
        assert_eq!(answer["unknown"], Value::Null);
        (placed["node"].clone(), placed["equalNodes"].clone())
    };
    assert_eq!(best(&nodes()), (json!("cpu-a"), json!(["cpu-a", "cpu-b"])));
    assert_eq!(best(&[nodes(), vec![running]].concat()), (json!("cpu-b"), json!(["cpu-b"])));
    // Images that are not known may draw the pod to either.
    let mut unknown = nodes();
    unknown[0]["status"]["images"] = Value::Null;
    assert_eq!(best(&unknown).1, json!(["cpu-a", "cpu-b"]));
}

/// People are told in words what programs get as `unknown`.
#[test]
fn what_may_choose_other_nodes_is_told() {
    let pods = [job("small", 1, (1, 1))];
    for (nodes, unknown, told) in [
        ("0", json!(null), &[][..]),
        ("1", json!(["learned-shapes"]), &["scheduler-ext has learned"]),
        (
            "101",
            json!(["learned-shapes", "examined-nodes"]),
            &["scheduler-ext has learned", "looks at some of those that fit"],
        ),
    ] {
        let asked = Asked::new(&pods, &[], |_| {});
        let added = ["--add-nodes", &format!("{NODE}={nodes}")];
        let added = if nodes == "0" { &[][..] } else { &added };
        assert_eq!(asked.json(added)["unknown"], unknown, "{nodes}");
        let text = asked.run(added);
        assert_eq!(text.matches("\nNote: ").count(), told.len(), "{text}");
        let text: Vec<&str> = text.split_whitespace().collect();
        let text = text.join(" ");
        assert!(told.iter().all(|told| text.contains(told)), "{text}");
    }
}

/// A volume that exists goes to the first of two pods that could have it.
#[test]
fn pods_do_not_share_a_free_volume() {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
        },
        "status": { "phase": "Available" },
    });
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "late" },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let claim = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        })
    };
    let with_claim = |name: &str| {
        let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": name } });
        cpu_pod(name, &json!({ "volumes": [volume] }))
    };
    let pods = [with_claim("one"), with_claim("two")];
    let used = [volume, class, claim("one"), claim("two")];
    // In the cluster, or in the file beside the pods.
    let in_cluster = (pods.to_vec(), [&[cpu_node("cpu-a")], &used[..]].concat());
    let in_file = ([&used[..], &pods].concat(), vec![cpu_node("cpu-a")]);
    for (pods, more) in [in_cluster, in_file] {
        let asked = Asked::new(&pods, &more, |_| {});
        let text = asked.run(&[]);
        assert_eq!(asked.json(&[])["placed"].as_array().unwrap().len(), 1, "{text}");
        assert!(text.contains("its PersistentVolumeClaim two finds no free volume"), "{text}");
    }
}

/// What keeps a pod off a node besides its devices.
#[test]
fn taints_and_requests_leave_nodes_out() {
    let node = |cpus: &str, taints: &Value| {
        let (cpus, taints) = (cpus.to_owned(), taints.clone());
        move |object: &mut Value| {
            if object["kind"] == "Node" {
                object["status"] =
                    json!({ "allocatable": { "cpu": cpus, "memory": "1Ti", "pods": "3" } });
                object["spec"]["taints"] = taints.clone();
            }
        }
    };
    let pairs = json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" });
    let cpus = json!({ "resources": { "requests": { "cpu": "8" } } });
    let deployment = |name: &str, annotations: &Value, spec: &Value| {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": name },
            "spec": { "replicas": 2, "template": template(annotations, spec) },
        })
    };
    let running = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "runs", "namespace": "other" },
        "spec": {
            "nodeName": NODE,
            "containers": [{ "name": "main", "resources": { "requests": { "cpu": "10" } } }],
        },
    });
    let pods = [deployment("aligned", &pairs, &cpus), deployment("plain", &json!({}), &cpus)];
    let of = |cpus: &str, taints: Value, running: &[Value]| {
        Asked::new(&pods, running, node(cpus, &taints)).run(&[])
    };
    let tainted = json!([{ "key": "sku", "value": "gpu", "effect": "NoSchedule" }]);
    let all = [
        of("64", Value::Null, &[]),
        of("64", Value::Null, std::slice::from_ref(&running)),
        of("20", Value::Null, &[running]),
        of("64", tainted, &[]),
    ];
    insta::assert_snapshot!(all.join("\n---\n"));
}

/// A group is placed on one fabric as a whole, or waits.
#[test]
fn a_group_goes_to_one_fabric() {
    let fabric = |object: &mut Value| {
        if object["kind"] == "Node" {
            object["metadata"]["labels"]["topology.dranet.io/fabric"] = "ib-7".into();
            object["status"] = json!({ "allocatable": { "cpu": "8", "pods": "110" } });
        }
    };
    let group = |name: &str, size: u32| {
        let mut job = job(name, size, (1, 2));
        let annotations = &mut job["spec"]["template"]["metadata"]["annotations"];
        annotations["dranet.io/fabric"] = name.into();
        annotations["dranet.io/fabric-size"] = size.to_string().into();
        job
    };
    let asked = Asked::new(&[group("three", 3), group("two", 2)], &[], fabric);
    insta::assert_snapshot!(asked.run(&[]));
}

#[test]
fn unschedulable_pods_are_explained() {
    let gated = {
        let mut job = job("gated", 1, (1, 1));
        job["spec"]["template"]["spec"]["schedulingGates"] = json!([{ "name": "example.com/x" }]);
        job
    };
    let unknown = {
        let mut job = job("claim", 1, (1, 1));
        let template = template(
            &json!({}),
            &json!({ "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "nothing" }] }),
        );
        job["spec"]["template"] = template;
        job
    };
    let asked = Asked::new(&[job("denied", 2, (1, 9)), gated, unknown], &[], |_| {});
    insta::assert_snapshot!(asked.run(&[]));
    insta::assert_snapshot!(asked.run(&["--add-nodes", "m9.large=2"]));
}

/// Rules about other pods are reported as ignored, if they could keep a pod off a node.
#[test]
fn ignored_rules_about_other_pods_are_reported() {
    let term = |selector: Value| {
        json!([{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": selector, "namespaceSelector": { "matchLabels": { "team": "a" } },
        }])
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let spread =
        |when: &str| json!([{ "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": when }]);
    let with = |name: &str, spec: Value| {
        let mut job = job(name, 1, (1, 1));
        let of_job = job["spec"]["template"]["spec"].as_object_mut().unwrap();
        of_job.extend(spec.as_object().unwrap().clone());
        job
    };
    let pods = [
        with("near", json!({ "affinity": { "podAffinity": { required: term(json!({})) } } })),
        with(
            "away",
            json!({
                "affinity": { "podAntiAffinity": { required: term(json!({ "matchLabels": { "app": "x" } })) } },
                "topologySpreadConstraints": spread("DoNotSchedule"),
            }),
        ),
        with("anywhere", json!({ "topologySpreadConstraints": spread("ScheduleAnyway") })),
    ];
    let asked = Asked::new(&pods, &[], |_| {});
    insta::assert_snapshot!(asked.run(&[]));
    assert_eq!(asked.json(&[])["remarks"].as_array().unwrap().len(), 1);
}

/// The scheduler of Kubernetes 1.35 takes pools in random order.
#[test]
fn files_are_read_with_the_named_version() {
    let pod = "../deploy/examples/aks-gb300/2nic-aligned.yaml";
    let exact = |more: &[&str]| {
        let args = ["kubectl-dranet", "plan", "-f", pod, "--snapshot", EXAMPLE, "-o", "json"];
        let args = Args::try_parse_from(args.iter().chain(more)).unwrap();
        let answer: Value =
            serde_json::from_str(&kubectl_dranet::run(&args).unwrap().text).unwrap();
        answer["nodes"][0]["exact"].clone()
    };
    assert_eq!(exact(&[]), true);
    assert_eq!(exact(&["--kubernetes-version", "v1.36.2"]), true);
    assert_eq!(exact(&["--kubernetes-version", "1.35"]), false);
    for (flags, expected) in [
        (&["--kubernetes-version", "1.35"][..], "--snapshot <PATH>"),
        (&["--snapshot", "x", "--kubernetes-version", "1.20"], "supported versions: 1.34 to 1.37"),
    ] {
        let args = ["kubectl-dranet", "top"].iter().chain(flags);
        let error = Args::try_parse_from(args).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
