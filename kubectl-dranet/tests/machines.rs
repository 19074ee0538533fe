//! `machines`: nodes that do not exist yet, as drivers would publish them.

#![cfg(feature = "machines")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use cluster_model::snapshot;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";
const SIZE: &str = "Standard_ND128isr_GB300_v6";

fn run(args: &[&str]) -> Result<String, String> {
    let args = [&["kubectl-dranet"], args].concat();
    let args = Args::try_parse_from(args).map_err(|error| error.to_string())?;
    let output = kubectl_dranet::run(&args);
    output.map(|output| output.text).map_err(|error| process::exit::one_line(&error))
}

fn objects(args: &[&str]) -> Vec<Value> {
    snapshot::parse(&run(args).unwrap(), "machines.yaml".as_ref()).unwrap()
}

/// The example's cluster with a changed node.
fn cluster(change: impl Fn(&mut Value)) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut objects = snapshot::objects(EXAMPLE.as_ref()).unwrap();
    objects.iter_mut().for_each(change);
    let path = folder.path().join("cluster.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    fs::write(&path, list.to_string()).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

/// The devices of a driver in ResourceSlices.
fn devices(objects: &[Value], driver: &str) -> Vec<Value> {
    let slices = objects.iter().filter(|object| object["kind"] == "ResourceSlice");
    let slices = slices.filter(|slice| slice["spec"]["driver"] == driver);
    slices.flat_map(|slice| slice["spec"]["devices"].as_array().unwrap().clone()).collect()
}

#[test]
fn known_machine_types_are_listed() {
    let (_folder, path) = cluster(|_| {});
    let text = run(&["machines", "--snapshot", &path]).unwrap();
    let of_cluster: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(of_cluster[..5], [SIZE, "1", "node", "4", "4"], "{text}");
    assert!(text.lines().any(|line| line.starts_with("azure-gb300") && line.contains("built in")));
    let built_in = run(&["machines", "--built-in"]).unwrap();
    assert!(!built_in.contains(SIZE) && built_in.lines().count() > 20, "{built_in}");
    // Machines that were made for tests can be used, and are not offered.
    for made in ["pxb-tie", "x86-two-per-switch", "numa-unknown", "epyc-nps4"] {
        assert!(!built_in.contains(made), "{made}: {built_in}");
        assert!(!objects(&["machines", "--built-in", made]).is_empty(), "{made}");
    }
}

/// What a node of the type publishes, equal but for names, addresses and serial numbers.
#[test]
fn a_template_is_what_a_node_of_the_type_publishes() {
    let real = snapshot::objects(EXAMPLE.as_ref()).unwrap();
    let template = objects(&["machines", SIZE, "--built-in", "-o", "slices"]);
    for driver in ["gpu.nvidia.com", "dra.net"] {
        let (real, template) = (devices(&real, driver), devices(&template, driver));
        assert_eq!(real.len(), template.len(), "{driver}");
        let address = |device: &Value| {
            let bus_id = &device["attributes"]["resource.kubernetes.io/pciBusID"]["string"];
            bus_id.as_str().unwrap().to_owned()
        };
        let addresses = |devices: &[Value]| devices.iter().map(address).collect::<BTreeSet<_>>();
        assert_eq!(addresses(&real), addresses(&template), "{driver}");
        for device in &template {
            let same = real.iter().find(|other| address(other) == address(device)).unwrap();
            for (name, value) in device["attributes"].as_object().unwrap() {
                let there = &same["attributes"][name];
                let is_own = name == "azure.dra.net/placementGroupId";
                assert!(there.is_null() || is_own || there == value, "{name}: {there}, {value}");
            }
        }
    }
}

/// A claim that is planned for a node of the type fits on a template, and on a node like it.
#[test]
fn claims_for_a_machine_type_fit_on_its_template() {
    let (_folder, path) = cluster(|object| {
        if object["kind"] == "Node" {
            object["spec"]["unschedulable"] = true.into();
        }
    });
    let pods = tempfile::tempdir().unwrap();
    let file = pods.path().join("pod.json").display().to_string();
    for gpus in ["1", "2", "4"] {
        let annotations = json!({ "dranet.io/aligned-nics": "per-gpu", "dranet.io/gpus": gpus });
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "a", "annotations": annotations },
            "spec": { "containers": [{ "name": "main", "image": "main" }] },
        });
        fs::write(&file, pod.to_string()).unwrap();
        for machine in [SIZE, "azure-gb300"] {
            let added = format!("{machine}=1");
            let args = ["simulate", "-f", &file, "--snapshot", &path, "--add-nodes", &added];
            let text = run(&args).unwrap();
            assert!(text.contains("1 pod placed, 0 not"), "{gpus} on {machine}: {text}");
        }
    }
}

/// A copy of a node has none of its troubles, and nothing that is the node's own.
#[test]
fn a_template_of_a_sick_node_is_healthy() {
    let (_folder, path) = cluster(|object| {
        if object["kind"] == "Node" {
            object["spec"]["unschedulable"] = true.into();
            object["spec"]["taints"] = json!([
                { "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" },
                { "key": "sku", "value": "gpu", "effect": "NoSchedule" },
            ]);
        }
        if object["spec"]["driver"] == "dra.net" {
            for device in object["spec"]["devices"].as_array_mut().unwrap() {
                device["attributes"]["dranet.io/portState"] = json!({ "string": "Down" });
                device["attributes"]["dranet.io/degraded"] = json!({ "bool": true });
                device["taints"] =
                    json!([{ "key": "dranet.io/port-down", "effect": "NoSchedule" }]);
            }
        }
    });
    let template = objects(&["machines", SIZE, "--snapshot", &path, "-o", "nodegroup"]);
    let text = serde_json::to_string(&template).unwrap();
    assert!(!text.contains(NODE), "{text}");
    assert_eq!(
        template[0]["spec"],
        json!({ "taints": [
        { "key": "sku", "value": "gpu", "effect": "NoSchedule" },
    ] })
    );
    let nics = devices(&template, "dra.net");
    assert_eq!(nics.len(), 4);
    for nic in nics {
        assert!(nic["taints"].is_null(), "{nic}");
        assert_eq!(nic["attributes"]["dranet.io/portState"], json!({ "string": "Active" }));
        assert_eq!(nic["attributes"]["dranet.io/degraded"], json!({ "bool": false }));
    }
}

#[test]
fn each_autoscaler_gets_its_form() {
    let kinds = |form: &str| {
        let objects = objects(&["machines", "aws-p5", "--built-in", "-o", form]);
        objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let slices = ["ResourceSlice"; 2].map(str::to_owned);
    assert_eq!(kinds("slices"), slices);
    assert_eq!(kinds("nodegroup"), [&["Node".to_owned()], &slices[..]].concat());
    let kwok = ["Node", "NodeTopology"].map(str::to_owned);
    assert_eq!(kinds("kwok"), [&kwok[..], &slices[..]].concat());
    let karpenter = run(&["machines", "aws-p5", "--built-in", "-o", "karpenter"]).unwrap();
    assert!(karpenter.starts_with("dynamicResources:"), "{karpenter}");
    assert!(!karpenter.contains("nodeName"), "{karpenter}");
    let error = run(&["machines", "no-such", "--built-in"]).unwrap_err();
    let expected = "invalid value `no-such`: no node has this shape, and no machine type with this name is \
                    built in; `kubectl dranet machines` lists all";
    assert!(error.contains(expected), "{error}");
    let error = run(&["machines", "--built-in", "-o", "slices"]).unwrap_err();
    assert!(error.contains("name a machine type"), "{error}");
}
