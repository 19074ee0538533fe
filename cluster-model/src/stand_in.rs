//! Substitute graphs for nodes that publish none. With another NIC driver, the NICs carry the
//! cloud's name of the machine type, which determines the graph.
//!
//! This works only for machine types that topology-graph describes. A node's own graph takes
//! precedence; a node with our driver publishes one soon.

use crate::names::{self, attribute};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology_graph::{Level, Overlay, Topology};

/// The substitute graphs, by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct StandIns {
    /// The node and machine type of each slice.
    slices: BTreeMap<String, (String, String)>,
    /// The machine type of each node.
    nodes: BTreeMap<String, String>,
    /// The graph of each machine type.
    graphs: BTreeMap<String, Arc<Topology>>,
}

impl StandIns {
    pub(crate) fn apply(&mut self, slice: &ResourceSlice) {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        self.delete(name);
        let Some((node, machine)) = machine(slice) else { return };
        if !self.graphs.contains_key(machine) {
            let Some(topology) = described(machine) else { return };
            self.graphs.insert(machine.to_owned(), Arc::new(topology));
        }
        self.slices.insert(name.to_owned(), (node.to_owned(), machine.to_owned()));
        self.nodes.insert(node.to_owned(), machine.to_owned());
    }

    pub(crate) fn delete(&mut self, name: &str) {
        let Some((node, _)) = self.slices.remove(name) else { return };
        if !self.slices.values().any(|(other, _)| *other == node) {
            self.nodes.remove(&node);
        }
    }

    pub(crate) fn topology(&self, node: &str) -> Option<&Arc<Topology>> {
        self.graphs.get(self.nodes.get(node)?)
    }
}

/// The graph of a machine type, if its description locates both GPUs and NICs; some descriptions
/// only supplement the machine's own facts.
fn described(machine: &str) -> Option<Topology> {
    let (topology, _) = Topology::from_overlay(&Overlay::built_in(machine)?);
    let cells = topology.cells(Level::Numa);
    let whole = cells.iter().any(|cell| !cell.gpus.is_empty() && !cell.nics.is_empty());
    whole.then_some(topology)
}

/// The node and machine type of a slice of NICs whose driver publishes no graph.
fn machine(slice: &ResourceSlice) -> Option<(&str, &str)> {
    let spec = &slice.spec;
    if spec.driver != names::DRIVER {
        return None;
    }
    let devices = spec.devices.as_deref().unwrap_or_default();
    if devices.iter().any(|device| text(device, attribute::SHAPE).is_some()) {
        return None;
    }
    let mut types = devices.iter().flat_map(|device| {
        attribute::MACHINE_TYPES.iter().filter_map(move |name| text(device, name))
    });
    Some((spec.node_name.as_deref()?, types.next()?))
}

fn text<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    device.attributes.as_ref()?.get(name)?.string.as_deref()
}
