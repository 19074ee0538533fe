//! Commands count the NICs of every known driver, as the table of drivers describes them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// The drivers of `tests/fixtures/nic-drivers`, with the class of their NICs.
const DRIVERS: [(&str, &str); 5] = [
    ("dra.net", "dranet.net"),
    ("dra.networking.k8s.aws", "roce.networking.k8s.aws"),
    ("sriovnetwork.k8snetworkplumbingwg.io", "sriovnetwork.k8snetworkplumbingwg.io"),
    ("networkdriver.cilium.io", "networkdriver.cilium.io"),
    ("mrdma.google.com", "mrdma.google.com"),
];

/// A NIC of the example as another driver publishes it.
fn nic(driver: &str, own: &Value) -> Value {
    let text = |name: &str| json!({ "string": own["attributes"][name]["string"] });
    let bus = "resource.kubernetes.io/pciBusID";
    let (rdma, address) = (text("dra.net/rdmaDevice"), text(bus));
    let (name, attributes) = match driver {
        "dra.networking.k8s.aws" => (
            rdma["string"].clone(),
            json!({ "dra.vpc.amazonaws.com/deviceType": { "string": "roce" } }),
        ),
        "sriovnetwork.k8snetworkplumbingwg.io" => {
            (own["name"].clone(), json!({ bus: address, "rdmaCapable": { "bool": true } }))
        }
        "networkdriver.cilium.io" => (own["name"].clone(), json!({ bus: address })),
        "mrdma.google.com" => (
            own["name"].clone(),
            json!({ "dra.net/pciAddress": address, "dra.net/rdma": { "bool": true } }),
        ),
        _ => return own.clone(),
    };
    json!({ "name": name.as_str().unwrap().replace('_', "-"), "attributes": attributes })
}

/// The example with the NICs of a driver, and a pod that takes a whole node.
struct Cluster(TempDir);

impl Cluster {
    fn with(driver: &str, class: &str) -> Self {
        let mut objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
        for object in &mut objects {
            if object["kind"] == "Node" {
                object["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "a-type".into();
            }
            if object["kind"] == "DeviceClass" && object["metadata"]["name"] == "dranet.net" {
                object["metadata"]["name"] = class.into();
                object["spec"]["selectors"][0]["cel"]["expression"] =
                    format!("device.driver == \"{driver}\"").into();
            }
            if object["kind"] == "ResourceSlice" && object["spec"]["driver"] == "dra.net" {
                object["spec"]["driver"] = driver.into();
                let devices = object["spec"]["devices"].as_array().unwrap();
                object["spec"]["devices"] =
                    devices.iter().map(|own| nic(driver, own)).collect::<Vec<_>>().into();
            }
        }
        // AWS's devices are named like RDMA devices, whose names have no underscore there.
        let text = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        let text = if driver.ends_with("aws") { text.replace("mlx5_", "mlx5-") } else { text };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "a", "annotations": { "dranet.io/aligned-nics": "per-gpu" } },
            "spec": { "containers": [{ "name": "main", "image": "main", "resources": {
                "limits": { "nvidia.com/gpu": 4 },
            } }] },
        });
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cluster.json"), text).unwrap();
        fs::write(folder.path().join("pod.json"), pod.to_string()).unwrap();
        Self(folder)
    }

    fn json(&self, command: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[command, &["-o", "json"]].concat())).unwrap()
    }

    fn text(&self, command: &[&str]) -> String {
        let path = |name: &str| self.0.path().join(name).display().to_string();
        let (cluster, pod) = (path("cluster.json"), path("pod.json"));
        let command = command.iter().map(|word| if *word == "POD" { &*pod } else { word });
        let words = ["kubectl-dranet"].into_iter().chain(command).chain(["--snapshot", &cluster]);
        kubectl_dranet::run(&Args::try_parse_from(words).unwrap()).unwrap().text
    }
}

#[test]
fn nics_of_every_known_driver_are_counted() {
    for (driver, class) in DRIVERS {
        let cluster = Cluster::with(driver, class);
        let doctor = cluster.json(&["doctor"]);
        assert_eq!((&doctor["withGpus"], &doctor["withNics"]), (&json!(1), &json!(1)), "{driver}");
        let findings = doctor["findings"].to_string();
        for wrong in ["no NICs of driver", "DeviceClass dranet.net", "driver dra.net"] {
            assert!(!findings.contains(wrong), "{driver}: {findings}");
        }
        let top = cluster.json(&["top", "--once"]);
        assert_eq!(top["nodes"][0]["nics"]["all"], 4, "{driver}: {top}");
        let simulated = cluster.text(&["simulate", "-f", "POD"]);
        let row = simulated.lines().find(|line| line.starts_with("default/a")).unwrap();
        let columns: Vec<_> = row.split_whitespace().rev().take(3).collect();
        assert_eq!(&columns[1..], ["4", "4"], "{driver}: {simulated}");
        let capacity = cluster.json(&["capacity", "--shape", "4gpu:4nic"]);
        assert!(capacity.to_string().contains("\"fitNow\":1"), "{driver}: {capacity}");
    }
}

/// A node whose NICs no driver publishes is reported with the name of the driver that others have.
#[test]
fn a_node_without_nics_is_reported_for_the_driver_of_the_cluster() {
    let cluster = Cluster::with("mrdma.google.com", "mrdma.google.com");
    let path = cluster.0.path().join("cluster.json");
    let mut list: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let items = list["items"].as_array_mut().unwrap();
    let copies = items.iter().filter(|it| {
        let driver = &it["spec"]["driver"];
        it["kind"] == "Node" || it["kind"] == "NodeTopology" || *driver == "gpu.nvidia.com"
    });
    let copies: Vec<Value> = copies
        .map(|it| serde_json::from_str(&it.to_string().replace(NODE, "bare")).unwrap())
        .collect();
    items.extend(copies);
    fs::write(&path, list.to_string()).unwrap();
    let findings = cluster.json(&["doctor"])["findings"].to_string();
    let expected = "GPUs but no NICs of driver mrdma.google.com, so no pod with aligned NICs can run \
                    there; check whether that driver runs there, and its log";
    assert!(findings.contains(expected), "{findings}");
}
