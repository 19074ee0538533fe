//! Random states of a cluster with nodes like the example's, and a workload for it.

use crate::random::Random;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

fn is_of_node(object: &Value) -> bool {
    ["Node", "NodeTopology", "ResourceSlice"].iter().any(|kind| object["kind"] == *kind)
}

/// Writes `cluster.json` and `pod.json`.
pub(crate) fn write(seed: usize, folder: &Path) {
    let mut random = Random((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let example = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
    let (of_node, mut objects): (Vec<_>, Vec<_>) = example.into_iter().partition(is_of_node);
    for index in 0..1 + random.below(4) {
        let name = format!("node-{index}");
        let (mut own, fabric) = (Vec::new(), random.below(2));
        for object in &of_node {
            let text = object.to_string().replace(NODE, &name);
            let mut object: Value = serde_json::from_str(&text).unwrap();
            change(&mut object, &mut random, fabric);
            own.push(object);
        }
        hold(&mut own, &mut random, &name);
        objects.append(&mut own);
    }
    if random.below(6) == 0 {
        objects.push(json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": "team", "namespace": "default" },
            "spec": { "hard": { "count/resourceclaims.resource.k8s.io": "1" } },
            "status": { "used": { "count/resourceclaims.resource.k8s.io": "1" } },
        }));
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    fs::write(folder.join("cluster.json"), list.to_string()).unwrap();
    fs::write(folder.join("pod.json"), workload(&mut random).to_string()).unwrap();
}

/// Changes what keeps pods away.
fn change(object: &mut Value, random: &mut Random, fabric: usize) {
    match object["kind"].as_str().unwrap() {
        "Node" => {
            let cpu = *random.pick(&["4", "64", "64", "64"]);
            let amounts = json!({ "cpu": cpu, "memory": "1Ti", "pods": "9" });
            object["status"]["allocatable"] = amounts;
            object["metadata"]["labels"]["topology.dranet.io/fabric"] = format!("f{fabric}").into();
            match random.below(10) {
                0 => object["spec"]["unschedulable"] = true.into(),
                1 => {
                    object["spec"]["taints"] =
                        json!([{ "key": "sku", "value": "gpu", "effect": "NoSchedule" }]);
                }
                2 => {
                    object["status"]["conditions"] = json!([{
                        "type": "Ready", "status": "Unknown",
                        "lastTransitionTime": "2026-11-20T02:14:00Z",
                    }]);
                }
                _ => {}
            }
        }
        "NodeTopology" => object["spec"]["fabric"] = format!("f{fabric}").into(),
        _ => {
            for device in object["spec"]["devices"].as_array_mut().into_iter().flatten() {
                if random.below(12) == 0 {
                    device["taints"] = json!([{
                        "key": "dranet.io/port-down", "effect": "NoSchedule",
                        "timeAdded": "2026-11-20T02:14:00Z",
                    }]);
                }
            }
        }
    }
}

/// Pods run on the node with some of its devices.
fn hold(own: &mut Vec<Value>, random: &mut Random, node: &str) {
    let mut devices = Vec::new();
    for slice in own.iter().filter(|object| object["kind"] == "ResourceSlice") {
        for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
            let (driver, pool) = (&slice["spec"]["driver"], &slice["spec"]["pool"]["name"]);
            devices.push(json!({
                "request": "r", "driver": driver, "pool": pool, "device": device["name"],
            }));
        }
    }
    for pod in 0..random.below(4) {
        let mut results = Vec::new();
        for _ in 0..(1 + random.below(3)).min(devices.len()) {
            results.push(devices.swap_remove(random.below(devices.len())));
        }
        let name = format!("{node}-{pod}");
        let nics = results.iter().filter(|result| result["driver"] == "dra.net").count();
        own.push(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "devices": { "requests": [
                { "name": "r", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
            ] } },
            "status": {
                "allocation": { "devices": { "results": results } },
                "reservedFor": [{ "resource": "pods", "name": name, "uid": name }],
            },
        }));
        own.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "uid": name, "annotations": {
                "dranet.io/aligned-nics": nics.max(1).to_string(),
            } },
            "spec": {
                "nodeName": node, "priority": random.below(3),
                "containers": [{ "name": "main", "image": "main", "resources": {
                    "requests": { "cpu": random.pick(&["1", "20", "40"]) }, "claims": [{ "name": "d" }],
                } }],
                "resourceClaims": [{ "name": "d", "resourceClaimName": name }],
            },
            "status": { "phase": "Running" },
        }));
    }
}

/// A pod or a job of several.
fn workload(random: &mut Random) -> Value {
    let gpus = 1 + random.below(4);
    let nics = [gpus, 2 * gpus, 1, 4];
    let mut annotations = json!({ "dranet.io/aligned-nics": random.pick(&nics).to_string() });
    for (key, chances, values) in [
        ("alignment", 3, &["switch", "root-port", "root", "numa"][..]),
        ("alignment-policy", 2, &["preferred"]),
        ("pairing", 3, &["group"]),
        ("fabric", 4, &["same"]),
    ] {
        if random.below(chances) == 0 {
            annotations[format!("dranet.io/{key}")] = (*random.pick(values)).into();
        }
    }
    let mut spec = json!({ "containers": [{ "name": "main", "image": "main", "resources": {
        "limits": { "nvidia.com/gpu": gpus.to_string() },
        "requests": { "cpu": random.pick(&["1", "30", "100"]) },
    } }] });
    match random.below(8) {
        0 => spec["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-0" }),
        1 => spec["tolerations"] = json!([{ "operator": "Exists" }]),
        2 => spec["priority"] = 9.into(),
        _ => {}
    }
    let metadata = json!({ "name": "asked", "namespace": "default", "annotations": annotations });
    if random.below(2) == 0 {
        return json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
    }
    let number = 1 + random.below(4);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "asked", "namespace": "default" },
        "spec": {
            "parallelism": number, "completions": number, "completionMode": "Indexed",
            "template": { "metadata": { "annotations": annotations }, "spec": spec },
        },
    })
}
