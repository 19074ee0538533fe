//! Adds devices to the topology file of a machine. What the operator wrote is kept.

use std::collections::BTreeSet;

use super::export::{elements, pci, version};
use super::{Element, NcclXml};
use crate::graph::{Place, Vertex};
use crate::{NumaNode, PciAddress, Topology};

impl NcclXml {
    /// The file with those of these devices that it lacks. A device with unknown NUMA node is not
    /// added, since NCCL would trust any place given. Functions of one device count as one, as they
    /// do for NCCL.
    pub(crate) fn completed(&self, topology: &Topology, devices: &BTreeSet<PciAddress>) -> Self {
        let mut system = self.system.clone();
        system.set("version", &version(topology, devices));
        let ends = topology.ends().filter(|(address, _)| devices.contains(address));
        for (address, vertex) in ends {
            if let Some(numa) = vertex.numa.filter(|_| !names(&system, address)) {
                add(&mut system, topology, vertex, numa);
            }
        }
        Self { system }
    }
}

/// Returns true if the element or one below it is a function of this device.
fn names(element: &Element, device: PciAddress) -> bool {
    let own = element.bus_id().is_some_and(|address| address.slot() == device.slot());
    own || element.children.iter().any(|child| names(child, device))
}

/// Adds the device below the nearest of its switches that the file has, or else below its NUMA node.
fn add(system: &mut Element, topology: &Topology, device: &Vertex, numa: NumaNode) {
    let path = elements(topology, device);
    let known = path.iter().rposition(|vertex| {
        vertex.place.address().is_some_and(|address| find(system, address).is_some())
    });
    let (top, rest) = match known {
        Some(at) => (path[at].place.address(), &path[at + 1..]),
        None => (None, path.as_slice()),
    };
    match top {
        Some(switch) => {
            if let Some(parent) = find_mut(system, switch) {
                hang(parent, topology, rest);
            }
        }
        None => hang(cpu(system, topology, numa), topology, rest),
    }
}

fn hang(parent: &mut Element, topology: &Topology, path: &[&Vertex]) {
    let [first, rest @ ..] = path else { return };
    let mut element = pci(topology, first);
    hang(&mut element, topology, rest);
    parent.children.push(element);
}

fn find(element: &Element, switch: PciAddress) -> Option<&Element> {
    if element.bus_id() == Some(switch) {
        return Some(element);
    }
    element.children.iter().find_map(|child| find(child, switch))
}

fn find_mut(element: &mut Element, switch: PciAddress) -> Option<&mut Element> {
    if element.bus_id() == Some(switch) {
        return Some(element);
    }
    element.children.iter_mut().find_map(|child| find_mut(child, switch))
}

/// The element of a NUMA node, which is added if it is missing.
fn cpu<'s>(system: &'s mut Element, topology: &Topology, numa: NumaNode) -> &'s mut Element {
    let text = numa.to_string();
    let at = system
        .children
        .iter()
        .position(|child| child.name == "cpu" && child.attribute("numaid") == Some(&text))
        .unwrap_or_else(|| {
            let cpus = topology.graph.vertex(Place::Numa(numa)).map(|vertex| &vertex.cpus);
            let mut cpu = Element::new("cpu").with("numaid", &numa);
            if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) {
                cpu = cpu.with("affinity", &cpus.mask());
            }
            system.children.push(cpu);
            system.children.len() - 1
        });
    &mut system.children[at]
}
