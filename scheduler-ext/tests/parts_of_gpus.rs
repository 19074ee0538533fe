//! GPUs of which claims hold parts: partitions, and shares of consumable capacity.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::snapshot;
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, DeviceId};
use scheduler_ext::machine::{Cells, NodeMachine};
use std::sync::Arc;

/// A GB300 node with a partition of GPU 0 in use.
const MIG: &str = "../admission/tests/fleets/mig.gz";
const NODE: &str = "gb300-1";

fn machine(view: &ClusterView) -> NodeMachine {
    let cells = Arc::new(Cells::new(Arc::clone(view.topology(NODE).unwrap())));
    NodeMachine::of(view, NODE, cells)
}

fn gpu(machine: &NodeMachine, name: &str) -> DeviceId {
    machine.devices().find(|id| &*id.device == name).unwrap().clone()
}

#[test]
fn a_gpu_with_a_partition_in_use_is_no_room() {
    let view = snapshot::load(MIG.as_ref()).unwrap().0;
    let machine = machine(&view);
    assert_eq!(machine.room(&AllocatedState::new()).node().gpus, 4);
    assert_eq!(machine.room(view.inventory().state()).node().gpus, 3);
}

#[test]
fn a_gpu_with_a_share_in_use_is_no_room_and_known_as_shared() {
    let view = snapshot::load(MIG.as_ref()).unwrap().0;
    let machine = machine(&view);
    let [used, free] = ["gpu-1", "gpu-2"].map(|name| gpu(&machine, name));
    let mut in_use = AllocatedState::new();
    in_use.insert_share(used.clone(), &[]);
    assert_eq!(machine.room(&in_use).node().gpus, 3);
    assert_eq!(machine.shared_gpus(&in_use, std::slice::from_ref(&free)), 0);
    assert_eq!(machine.shared_gpus(&in_use, &[used, free]), 1);
}
