//! Graphs of nodes that publish none: under another NIC driver the cloud's name
//! of the machine, which the NICs carry, says what its graph is.
//!
//! Only for sizes that topology-graph has a description of. A node's own graph
//! comes first, and a NIC of our driver says that one will come.

use crate::names::{self, attribute};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology_graph::{Level, Overlay, Topology};

/// The graphs, by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct StandIns {
    /// Node and type of its machine, by slice.
    slices: BTreeMap<String, (String, String)>,
    /// Type of machine by node.
    nodes: BTreeMap<String, String>,
    /// Graph by type of machine.
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

/// The graph of a type of machine, where its description says where both GPUs
/// and NICs are; some descriptions only add to what the machine itself tells.
fn described(machine: &str) -> Option<Topology> {
    let (topology, _) = Topology::from_overlay(&Overlay::built_in(machine)?);
    let cells = topology.cells(Level::Numa);
    let whole = cells.iter().any(|cell| !cell.gpus.is_empty() && !cell.nics.is_empty());
    whole.then_some(topology)
}

/// Node and type of machine of a slice of NICs whose driver publishes no shape.
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
