//! Test data: machines whose ResourceSlices were published by upstream DRANET, and the
//! facts behind them.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "the files of this folder are sound"
)]

use crate::cloud::CloudMetadata;
use crate::machine::Facts;
use crate::network::NetworkFacts;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use topology_graph::{HostRoot, LinkLayer, PciFunction, RdmaDevice, fixture};

/// The machines.
pub const MACHINES: [&str; 4] = ["aks-gb300", "aks-mi300x", "eks-p4d", "oke-gb200"];

/// Writes the machine's files into a new directory.
pub fn plant(machine: &str) -> TempDir {
    let text = match machine {
        "aks-gb300" => fixture::machine("azure-gb300").unwrap().to_owned(),
        machine => text(machine, "host.machine"),
    };
    let root = tempfile::tempdir().unwrap();
    fixture::plant(&text, root.path()).unwrap();
    root
}

/// All facts of a machine.
pub fn facts(machine: &str) -> Facts {
    let root = plant(machine);
    Facts {
        snapshot: topology_graph::read(&HostRoot::at(root.path())).unwrap(),
        network: network(machine),
        cloud: cloud(machine),
        rails: None,
    }
}

/// What the kernel says about its network.
pub fn network(machine: &str) -> NetworkFacts {
    serde_json::from_str(&text(machine, "network.json")).unwrap()
}

/// What its cloud says about it.
pub fn cloud(machine: &str) -> CloudMetadata {
    serde_json::from_str(&text(machine, "cloud.json")).unwrap()
}

/// The devices that upstream published on it.
pub fn published_by_upstream(machine: &str) -> Vec<Device> {
    let text = text(machine, "resourceslice-dranet.yaml");
    // A list if `kubectl get -o yaml` wrote one.
    let slice: ResourceSlice = serde_saphyr::from_str::<List>(&text)
        .ok()
        .and_then(|list| list.items.into_iter().next())
        .unwrap_or_else(|| serde_saphyr::from_str(&text).unwrap());
    slice.spec.devices.unwrap()
}

/// A network controller of NVIDIA's at this address, which its kernel driver has.
pub fn function(address: &str) -> PciFunction {
    let path = format!("devices/pci0000:00/{address}");
    let function = json!({
        "address": address, "path": path, "bridges": [], "class": 0x02_0000, "vendor": 0x15b3,
        "device": 0x1021, "driver": "mlx5_core", "managesSwitches": false,
    });
    serde_json::from_value(function).unwrap()
}

/// An RDMA device with one active port, and with these character devices.
pub fn rdma_device(name: &str, layer: LinkLayer, [uverbs, umad, issm]: [&str; 3]) -> RdmaDevice {
    let port = json!({"number": 1, "state": "active", "linkLayer": layer});
    let device =
        json!({"name": name, "ports": [port], "uverbs": [uverbs], "umad": [umad], "issm": [issm]});
    serde_json::from_value(device).unwrap()
}

#[derive(serde::Deserialize)]
struct List {
    items: Vec<ResourceSlice>,
}

fn text(machine: &str, file: &str) -> String {
    let path: PathBuf = [
        Path::new(env!("CARGO_MANIFEST_DIR")),
        Path::new("fixtures"),
        Path::new(machine),
        Path::new(file),
    ]
    .iter()
    .collect();
    fs::read_to_string(path).unwrap()
}
