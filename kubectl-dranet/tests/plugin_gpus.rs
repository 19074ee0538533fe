//! What each command says where a device plugin offers the GPUs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";
const GPU: &str = "nvidia.com/gpu";

/// A folder with a cluster.
struct Cluster(TempDir);

impl Cluster {
    /// The example's node with this number of GPUs of a device plugin, with or without those of its DRA
    /// driver, and more objects.
    fn of(plugin: &str, has_driver: bool, more: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
        objects.retain(|object| has_driver || object["spec"]["driver"] != "gpu.nvidia.com");
        for node in objects.iter_mut().filter(|object| object["kind"] == "Node") {
            let amounts = json!({ "cpu": "64", "pods": "9", GPU: plugin });
            node["status"]["allocatable"] = amounts.clone();
            node["status"]["capacity"] = amounts;
        }
        objects.extend_from_slice(more);
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        fs::write(folder.path().join("cluster.json"), list.to_string()).unwrap();
        Self(folder)
    }

    /// Changes the objects.
    fn change(&mut self, change: impl FnOnce(&mut Vec<Value>)) {
        let path = self.0.path().join("cluster.json");
        let mut list: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(list["items"].as_array_mut().unwrap());
        fs::write(path, list.to_string()).unwrap();
    }

    fn run(&self, args: &[&str]) -> String {
        let cluster = self.0.path().join("cluster.json").display().to_string();
        let args = ["kubectl-dranet"].iter().chain(args).copied();
        let args = args.chain(["--snapshot", &cluster]);
        match kubectl_dranet::run(&Args::try_parse_from(args).unwrap()) {
            Ok(output) => output.text,
            Err(error) => format!("error: {}\n", process::exit::one_line(&error)),
        }
    }

    fn of_file(&self, command: &str, object: &Value) -> String {
        let file = self.0.path().join("asked.json");
        fs::write(&file, object.to_string()).unwrap();
        self.run(&[command, "-f", &file.display().to_string()])
    }

    fn of_file_as_json(&self, command: &str, object: &Value) -> String {
        let file = self.0.path().join("asked.json");
        fs::write(&file, object.to_string()).unwrap();
        self.run(&[command, "-f", &file.display().to_string(), "-o", "json"])
    }

    /// The findings of `doctor`, one per line.
    fn findings(&self) -> String {
        let text = self.run(&["doctor"]).replace("\n  ", " ");
        let about = |line: &&str| line.starts_with("warning:") || line.starts_with("error:");
        text.lines().filter(about).fold(String::new(), |found, line| found + line + "\n")
    }
}

fn job(pods: u32, gpus: &str, nics: &str) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "train" },
        "spec": { "parallelism": pods, "template": {
            "metadata": { "annotations": { "dranet.io/aligned-nics": nics } },
            "spec": { "containers": [{
                "name": "main", "image": "main", "resources": { "limits": { GPU: gpus } },
            }] },
        } },
    })
}

/// A pod on the node.
fn running(name: &str, phase: &str, gpus: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "team" },
        "spec": { "nodeName": NODE, "containers": [{
            "name": "main", "resources": { "limits": { GPU: gpus }, "requests": { GPU: gpus } },
        }] },
        "status": { "phase": phase },
    })
}

#[test]
fn whole_machines_are_planned_and_placed() {
    let cluster = Cluster::of("4", false, &[]);
    let mut text = cluster.of_file("plan", &job(1, "4", "2"));
    text.push_str(&cluster.of_file("simulate", &job(2, "4", "2")));
    text.push_str(&cluster.of_file("explain", &job(1, "4", "2")));
    text.push_str(&cluster.of_file("explain", &job(1, "2", "2")));
    let busy = Cluster::of("4", false, &[running("other", "Running", "1")]);
    text.push_str(&busy.of_file("explain", &job(1, "4", "2")));
    insta::assert_snapshot!(text);
}

/// Publishes four places instead of the NICs.
fn bind_late(objects: &mut [Value]) {
    for slice in objects.iter_mut().filter(|object| object["spec"]["driver"] == "dra.net") {
        let place = |index: usize| {
            json!({ "name": format!("late-{index}"), "attributes": {
                "dranet.io/lateBinding": { "bool": true },
                "dranet.io/role": { "string": "compute" },
                "dra.net/rdma": { "bool": true },
            } })
        };
        slice["spec"]["devices"] = (0..4).map(place).collect();
    }
}

/// Places have no address: what is said about them is how many there are.
#[test]
fn places_of_late_binding_are_called_so() {
    let mut cluster = Cluster::of("4", false, &[]);
    cluster.change(|objects| bind_late(objects));
    let mut text = cluster.run(&["top"]);
    text.push_str(&cluster.of_file("plan", &job(1, "2", "2")));
    text.push_str(&cluster.of_file("simulate", &job(2, "2", "2")));
    text.push_str(&cluster.run(&["capacity"]));
    cluster.change(|objects| {
        let result = |index: usize| json!({ "request": "nics", "driver": "dra.net", "pool": NODE, "device": format!("late-{index}") });
        let mut held = held();
        held["status"]["allocation"]["devices"]["results"] = (0..3).map(result).collect();
        objects.extend([held, running("other", "Running", "3")]);
    });
    text.push_str(&cluster.run(&["capacity", "--shape", "1gpu:1nic"]));
    text.push_str(&cluster.run(&["top", "-o", "json"]));
    text.push_str(&cluster.of_file("explain", &job(1, "2", "2")));
    insta::assert_snapshot!(text);
}

/// How near the NICs of a pod will be, before its start, and what it got.
#[test]
fn nearness_on_nodes_that_bind_nics_late() {
    let mut cluster = Cluster::of("4", false, &[running("blind", "Running", "1")]);
    cluster.change(|objects| {
        bind_late(objects);
        // A pod has the two GPUs of the first NUMA node, and the NICs of the second.
        objects.extend([started("far", true), on_node("far", "2")]);
        for graph in objects.iter_mut().filter(|object| object["kind"] == "NodeTopology") {
            graph["spec"]["topologyManagerPolicy"] = "best-effort".into();
        }
    });
    let mut text = cluster.run(&["top", "--once"]);
    text.push_str(&cluster.of_file("plan", &job(1, "1", "1")));
    let plan: Value =
        serde_json::from_str(&cluster.of_file_as_json("plan", &job(1, "1", "1"))).unwrap();
    writeln!(text, "{:#}", plan["nodes"][0]["atStart"]).unwrap();
    text.push_str(&cluster.of_file("explain", &job(1, "1", "1")));
    text.push_str(&cluster.of_file_as_json("explain", &job(1, "1", "1")));
    text.push_str(&cluster.run(&["capacity", "--shape", "1gpu:1nic"]));
    text.push_str(&cluster.run(&["explain", "far", "--namespace", "team"]));
    text.push_str(&cluster.run(&["verify", "far", "--namespace", "team", "-o", "wide"]));
    cluster.change(|objects| {
        objects.retain(|object| object["metadata"]["name"] != "far");
        objects.extend([started("waits", false), on_node("waits", "2")]);
    });
    text.push_str(&cluster.run(&["explain", "waits", "--namespace", "team"]));
    insta::assert_snapshot!(text);
}

/// A claim for two places of a pod of the same name; whether the driver has chosen its NICs.
fn started(name: &str, is_bound: bool) -> Value {
    let place = |index: usize| json!({ "request": "nics", "driver": "dra.net", "pool": NODE, "device": format!("late-{index}") });
    let chosen = |index: usize, nic: &str| {
        json!({ "driver": "dra.net", "pool": NODE, "device": format!("late-{index}"), "data": {
            "nic": "nic", "pciBusID": nic, "gpus": ["0008:06:00.0", "0009:06:00.0"],
        } })
    };
    let devices = [chosen(0, "0103:00:00.0"), chosen(1, "0104:00:00.0")];
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "team", "uid": format!("u-{name}") },
        "spec": { "devices": {
            "requests": [{ "name": "nics", "exactly": {
                "deviceClassName": "dranet.net", "count": 2,
            } }],
            "config": [{ "requests": ["nics"], "opaque": { "driver": "dra.net", "parameters": {
                "lateBinding": { "gpus": 2, "within": "numa" },
            } } }],
        } },
        "status": {
            "allocation": { "devices": { "results": [place(0), place(1)] } },
            "reservedFor": [{ "resource": "pods", "name": name, "uid": "u" }],
            "devices": if is_bound { json!(devices) } else { json!([]) },
        },
    })
}

/// A running pod with GPUs and the claim of its name.
fn on_node(name: &str, gpus: &str) -> Value {
    let mut pod = running(name, "Pending", gpus);
    pod["spec"]["resourceClaims"] = json!([{ "name": "dranet", "resourceClaimName": name }]);
    pod
}

/// A claim that holds both NICs of the first NUMA node.
fn held() -> Value {
    let result = |device: &str| json!({ "request": "nics", "driver": "dra.net", "pool": NODE, "device": device });
    let results = ["pci-0101-00-00-0", "pci-0102-00-00-0"].map(result);
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": "held", "namespace": "team", "uid": "u-held" },
        "spec": { "devices": { "requests": [
            { "name": "nics", "exactly": { "deviceClassName": "dranet.net", "count": 2 } },
        ] } },
        "status": { "allocation": { "devices": { "results": results } } },
    })
}

/// The first node by name has far NICs only.
#[test]
fn the_extender_prefers_nodes_with_near_nics() {
    let cluster = Cluster::of("4", false, &[held()]);
    let mut asked = job(1, "4", "2");
    asked["spec"]["template"]["metadata"]["annotations"]["dranet.io/alignment-policy"] =
        "preferred".into();
    let file = cluster.0.path().join("asked.json");
    fs::write(&file, asked.to_string()).unwrap();
    let file = file.display().to_string();
    let place = |more: &[&str]| -> Value {
        let args = [&["simulate", "-f", &file, "-o", "json"][..], more].concat();
        let answer: Value = serde_json::from_str(&cluster.run(&args)).unwrap();
        answer["placed"][0]["node"].clone()
    };
    assert_eq!(place(&[]), NODE, "any NICs are better than none");
    let other = place(&["--add-nodes", &format!("{NODE}=1")]);
    assert!(other.is_string() && other != NODE, "{other}");
}

/// A node that moves from a device plugin to a DRA driver.
#[test]
fn doctor_follows_a_node_that_moves() {
    let claimed = {
        let mut pod = running("by-claim", "Running", "1");
        pod["status"]["extendedResourceClaimStatus"] =
            json!({ "requestMappings": [], "resourceClaimName": "by-claim-x" });
        pod
    };
    let pods = [
        running("train-0", "Running", "2"),
        running("train-1", "Succeeded", "2"),
        running("plain", "Running", "0"),
        claimed,
    ];
    let states = [
        ("only a device plugin", Cluster::of("4", false, &pods)),
        ("its units are shared", Cluster::of("16", false, &pods)),
        ("both", Cluster::of("4", true, &pods)),
        ("a DRA driver, and pods of the device plugin", Cluster::of("0", true, &pods)),
        ("moved", Cluster::of("0", true, &pods[1..])),
    ];
    let text = states.iter().map(|(name, cluster)| format!("{name}\n{}\n", cluster.findings()));
    insta::assert_snapshot!(text.collect::<String>());
}
