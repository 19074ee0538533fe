//! Nodes whose NICs another driver publishes have the same room and the same distances.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::snapshot;
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, DeviceId};
use scheduler_ext::machine::{Cells, NodeMachine};
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// The example with its NICs by AWS's driver: their names are those of the graph's RDMA devices, and
/// nothing else says where they are. The last one is for storage, by the graph only.
fn example(is_aws: bool) -> ClusterView {
    let mut objects = snapshot::objects(EXAMPLE.as_ref()).unwrap();
    for object in &mut objects {
        if object["kind"] == "NodeTopology" {
            let nics = object["spec"]["nics"].as_array_mut().unwrap();
            nics.last_mut().unwrap()["role"] = "storage".into();
        }
        if object["kind"] != "ResourceSlice" || object["spec"]["driver"] != "dra.net" {
            continue;
        }
        let devices = object["spec"]["devices"].as_array_mut().unwrap();
        let last = devices.len() - 1;
        for (index, device) in devices.iter_mut().enumerate() {
            if !is_aws {
                let role = if index == last { "storage" } else { "compute" };
                device["attributes"]["dranet.io/role"] = json!({ "string": role });
                continue;
            }
            let name = device["attributes"]["dra.net/rdmaDevice"]["string"].as_str().unwrap();
            *device = json!({ "name": name.replace('_', "-"), "attributes": {
                "dra.vpc.amazonaws.com/deviceType": { "string": "roce" },
            } });
        }
        if is_aws {
            object["spec"]["driver"] = "dra.networking.k8s.aws".into();
        }
    }
    let text = Value::from(objects).to_string();
    let text = if is_aws { text.replace("mlx5_", "mlx5-") } else { text };
    let list = format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": {text}}}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.json");
    fs::write(&path, list).unwrap();
    snapshot::load(&path).unwrap().0
}

#[test]
fn nics_of_another_driver_count_as_ours() {
    let [ours, aws] = [false, true].map(|is_aws| {
        let view = example(is_aws);
        let cells = Arc::new(Cells::new(Arc::clone(view.topology(NODE).unwrap())));
        (NodeMachine::of(&view, NODE, cells), view)
    });
    let none = AllocatedState::new();
    let room = ours.0.room(&none);
    assert_eq!((room.node().gpus, room.node().nics), (4, 3), "a NIC for storage does not count");
    assert_eq!(room.levels(), aws.0.room(&none).levels());
    let taken = |machine: &NodeMachine, names: [&str; 2]| -> Vec<DeviceId> {
        machine.devices().filter(|id| names.contains(&&*id.device)).cloned().collect()
    };
    for (rdma, name) in [("mlx5-0", "pci-0101-00-00-0"), ("mlx5-2", "pci-0103-00-00-0")] {
        let [known, other] = [taken(&ours.0, ["gpu-0", name]), taken(&aws.0, ["gpu-0", rdma])];
        assert_eq!((known.len(), other.len()), (2, 2));
        let farthest = ours.0.farthest(&known);
        assert!(farthest.is_some());
        assert_eq!(farthest, aws.0.farthest(&other), "{rdma}");
    }
}
