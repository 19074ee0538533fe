//! Whether a new pod can get the devices of a node, and which free GPUs have lost their NICs.

use crate::late_node::LateNode;
use crate::node_devices::{NodeDevice, NodeDevices, Role, is_divided, is_partly_used, partitions};
use crate::published_device::{PublishedDevice as _, Trouble};
use crate::view::ClusterView;
use std::collections::BTreeSet;
use topology_graph::{Level, PciAddress};

/// A GPU, a NIC or a place of a node, and whether a new pod can get it.
#[derive(Clone, Debug)]
pub struct DeviceState<'v> {
    /// The device.
    pub published: NodeDevice<'v>,
    /// Why no new pod gets it.
    pub trouble: Option<Trouble<'v>>,
    /// Whether nothing of it is in use, and it has no trouble.
    pub is_free: bool,
    /// Whether claims hold parts of it that leave something for others, and it has no trouble.
    pub is_partly: bool,
}

impl<'v> DeviceState<'v> {
    /// The GPUs, NICs and places of a node, in allocation order.
    pub fn all(view: &'v ClusterView, node: &str) -> Vec<Self> {
        let in_use = view.inventory().state();
        let all: Vec<NodeDevice<'v>> = NodeDevice::all(view, node).collect();
        let partitions = partitions(&all);
        let whole = all.iter().filter(|it| it.role != Role::Part);
        let states = whole.map(|it| {
            let trouble = it.device.trouble();
            let gpu = it.address.filter(|_| it.role.is_gpu());
            let is_taken = in_use.is_taken(it.device.id())
                || gpu.is_some_and(|gpu| is_divided(gpu, &partitions, in_use));
            Self {
                published: *it,
                is_free: trouble.is_none() && !is_taken,
                is_partly: trouble.is_none() && is_partly_used(it.device, in_use),
                trouble,
            }
        });
        states.collect()
    }
}

/// The free GPUs of a node that have lost their NICs: near them are NICs, but none that a new pod can get.
/// Empty if the node has no graph, or if it is not known which of its GPUs are in use.
pub fn stranded(view: &ClusterView, node: &str) -> BTreeSet<PciAddress> {
    let Some(devices) = NodeDevices::new(view, node) else { return BTreeSet::new() };
    if let Some(late) = LateNode::new(view, node, view.inventory().state()) {
        let (gpus, nics) = late.free();
        let is_known = late.hidden_gpus() == 0;
        let found = is_known.then(|| devices.topology.stranded(Level::Numa, gpus, nics));
        return found.unwrap_or_default();
    }
    let (mut gpus, mut nics) = (BTreeSet::new(), BTreeSet::new());
    for state in DeviceState::all(view, node) {
        let Some(address) = state.published.address else { continue };
        if state.published.role.is_gpu() && state.is_free {
            gpus.insert(address);
        } else if state.published.role.is_nic() && (state.is_free || state.is_partly) {
            nics.insert(address);
        }
    }
    devices.topology.stranded(devices.planned_level(), &gpus, &nics)
}
