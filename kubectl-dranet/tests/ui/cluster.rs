//! A cluster whose devices are in every state, with names that try to be markup.

use cluster_model::snapshot;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const EXAMPLE_NODE: &str = "aks-gpu-45139532-vmss000081";

/// A pod whose name would run a script if a page inserted it as markup.
pub(crate) const HOSTILE: &str = "near<img src=x onerror=alert(1)>";

/// A label that would end the block of the data.
pub(crate) const HOSTILE_BLOCK: &str = "</script><script>alert(2)</script>";

/// Writes the cluster: node `a` with devices in every state, node `b` with free ones.
pub(crate) fn write(folder: &Path) -> PathBuf {
    let example = snapshot::objects(Path::new(EXAMPLE)).unwrap();
    let named = |name: &str| -> Vec<Value> {
        let objects = example.iter().filter(|object| of_node(object));
        objects
            .map(|object| {
                serde_json::from_str(&object.to_string().replace(EXAMPLE_NODE, name)).unwrap()
            })
            .collect()
    };
    let mut objects: Vec<Value> =
        example.iter().filter(|object| !of_node(object)).cloned().collect();
    let mut a = named("a");
    for object in &mut a {
        change(object);
    }
    objects.extend(a);
    objects.extend(named("b"));
    objects.extend(pod(HOSTILE, &[GPU[0], NIC[0]]));
    objects.extend(pod("far", &[GPU[2], NIC[1]]));
    objects.extend(pod("nics", &[NIC[3]]));
    objects.push(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "waits", "namespace": "acme", "uid": "u",
            "annotations": { "dranet.io/aligned-nics": "4", "dranet.io/gpus": "9" },
        },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    }));
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let path = folder.join("cluster.json");
    fs::write(&path, list.to_string()).unwrap();
    path
}

const GPU: [(&str, &str); 4] = [
    ("gpu.nvidia.com", "gpu-0"),
    ("gpu.nvidia.com", "gpu-1"),
    ("gpu.nvidia.com", "gpu-2"),
    ("gpu.nvidia.com", "gpu-3"),
];
const NIC: [(&str, &str); 4] = [
    ("dra.net", "pci-0101-00-00-0"),
    ("dra.net", "pci-0102-00-00-0"),
    ("dra.net", "pci-0103-00-00-0"),
    ("dra.net", "pci-0104-00-00-0"),
];

fn of_node(object: &Value) -> bool {
    object.to_string().contains(EXAMPLE_NODE)
}

/// GPU1 is tainted, the port of the third NIC is down, and the node is in a block.
fn change(object: &mut Value) {
    if object["kind"] == "Node" {
        object["metadata"]["labels"]["topology.dranet.io/block"] = HOSTILE_BLOCK.into();
    }
    let devices = object["spec"]["devices"].as_array_mut().filter(|_| true);
    for device in devices.into_iter().flatten() {
        if device["name"] == GPU[1].1 {
            device["taints"] = json!([{ "key": "example.com/xid", "effect": "NoSchedule" }]);
        }
        if device["name"] == NIC[2].1 {
            device["attributes"]["dranet.io/portState"]["string"] = "Down".into();
        }
    }
}

/// A pod on node `a`, and its claim with these devices.
fn pod(name: &str, devices: &[(&str, &str)]) -> [Value; 2] {
    let results: Vec<Value> = devices
        .iter()
        .map(|(driver, device)| json!({ "request": "r", "driver": driver, "pool": "a", "device": device }))
        .collect();
    let claim = format!("{name}-claim");
    [
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "name": claim, "namespace": "acme" },
            "spec": { "devices": { "requests": [
                { "name": "r", "exactly": { "deviceClassName": "dranet.net" } },
            ] } },
            "status": {
                "allocation": { "devices": { "results": results } },
                "reservedFor": [{ "resource": "pods", "name": name, "uid": name }],
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "acme", "uid": name,
                "annotations": { "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" },
            },
            "spec": {
                "nodeName": "a",
                "containers": [{ "name": "main", "image": "main" }],
                "resourceClaims": [{ "name": "dranet", "resourceClaimName": claim }],
            },
            "status": { "phase": "Running" },
        }),
    ]
}
