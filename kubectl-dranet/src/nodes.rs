//! The devices of each node, and how many are free.

use cluster_model::names::{self, attribute, label};
use cluster_model::node_devices::{self, NodeDevices, Role, published};
use cluster_model::view::ClusterView;
use dra_allocator::Device;
use std::collections::BTreeMap;
use topology_graph::Level;

/// Label with which clouds name their machine types.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// One node's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    /// The machine type, otherwise the hash of its shape.
    pub(crate) machine: String,
    pub(crate) fabric: Option<String>,
    pub(crate) gpus: Amount,
    pub(crate) nics: Amount,
    /// Cells of NUMA nodes with GPUs and NICs, all of them free; `None` if the node has no graph.
    pub(crate) whole_cells: Option<usize>,
    /// NICs whose port is not active, or whose link is degraded: `nic-0: Down`.
    pub(crate) ports: Vec<String>,
}

/// How many are free, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) free: usize,
    pub(crate) all: usize,
}

impl NodeState {
    pub(crate) fn of(view: &ClusterView, node: &str) -> Self {
        let mut state = Self {
            name: node.to_owned(),
            machine: machine(view, node),
            fabric: fabric(view, node),
            gpus: Amount::default(),
            nics: Amount::default(),
            whole_cells: None,
            ports: Vec::new(),
        };
        let in_use = view.inventory().state();
        for (role, device) in published(view, node) {
            let amount = match role {
                Role::Gpu => &mut state.gpus,
                Role::Nic => {
                    state.ports.extend(trouble(device));
                    &mut state.nics
                }
            };
            amount.all += 1;
            amount.free += usize::from(!in_use.contains(device.id()));
        }
        let devices = NodeDevices::of(view, node);
        state.whole_cells = devices.map(|it| it.whole_cells(Level::Numa, in_use));
        state
    }
}

/// Returns why a NIC carries less than it could.
pub(crate) fn trouble(nic: &Device) -> Option<String> {
    let name = &nic.id().device;
    match node_devices::text(nic, attribute::PORT_STATE) {
        Some(state) if state != names::PORT_ACTIVE => {
            Some(format!("{name}: port is {state}, not {}", names::PORT_ACTIVE))
        }
        _ if node_devices::is_true(nic, attribute::DEGRADED) => {
            Some(format!("{name}: PCIe link is slower or narrower than possible"))
        }
        _ => None,
    }
}

/// The machine type of a node, otherwise the hash of its shape.
pub(crate) fn machine(view: &ClusterView, node: &str) -> String {
    let labels = view.inventory().node(node).map(|node| &node.labels);
    if let Some(machine) = labels.and_then(|labels| labels.get(INSTANCE_TYPE)) {
        return machine.to_string();
    }
    view.topology(node)
        .map_or_else(|| "unknown".to_owned(), |graph| format!("shape {}", graph.shape()))
}

/// The fabric of a node by its label, otherwise by its graph.
pub(crate) fn fabric(view: &ClusterView, node: &str) -> Option<String> {
    let labels = view.inventory().node(node).map(|node| &node.labels);
    let label = labels.and_then(|labels| labels.get(label::NODE_FABRIC));
    label.map(ToString::to_string).or_else(|| view.fabric(node).map(str::to_owned))
}

/// Labels of a node.
pub(crate) fn labels(view: &ClusterView, node: &str) -> BTreeMap<String, String> {
    let labels = view.inventory().node(node).map(|node| &node.labels);
    let labels = labels.into_iter().flatten();
    labels.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}
