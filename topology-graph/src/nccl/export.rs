//! Writes a graph as an NCCL topology file, usable as `NCCL_TOPO_FILE`.
//!
//! The file has only `<cpu>` and `<pci>` elements: NCCL adds GPUs, NICs and everything that it can
//! read itself (its maintainers' advice for virtual machines). A switch is one element, as NCCL
//! climbs two bridges at a time. A device with unknown NUMA node is omitted, since NCCL would trust
//! any place given.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use super::{Element, NcclXml, VERSION};
use crate::class::PCI_BRIDGE;
use crate::graph::{Place, Role, Vertex};
use crate::{NumaNode, PciAddress, PcieLink, Topology};

/// The graph as an NCCL topology file.
pub fn nccl_xml(topology: &Topology) -> String {
    let all = topology.ends().map(|(address, _)| address).collect();
    NcclXml { system: system(topology, &all) }.write()
}

/// The part of the graph with these devices as an NCCL topology file: the devices, their ancestors
/// and their NUMA nodes. `None` if none of them has a NUMA node, since such a file would be useless
/// to NCCL.
pub fn nccl_xml_of(topology: &Topology, devices: &BTreeSet<PciAddress>) -> Option<String> {
    let system = system(topology, devices);
    (!system.children.is_empty()).then(|| NcclXml { system }.write())
}

fn system(topology: &Topology, kept: &BTreeSet<PciAddress>) -> Element {
    let mut system = Element::new("system").with("version", &VERSION);
    let devices = topology.ends().filter(|(address, _)| kept.contains(address));
    let nodes: BTreeSet<NumaNode> = devices.filter_map(|(_, vertex)| vertex.numa).collect();
    system.children = nodes.into_iter().map(|node| cpu(topology, node, kept)).collect();
    system
}

fn cpu(topology: &Topology, node: NumaNode, kept: &BTreeSet<PciAddress>) -> Element {
    let cpus = topology.graph.numa(node).map(|vertex| &vertex.cpus);
    let affinity = cpus.filter(|cpus| !cpus.is_empty());
    let mut cpu = Element::new("cpu").with("numaid", &node);
    if let Some(cpus) = affinity {
        cpu = cpu.with("affinity", &cpus.mask());
    }
    let devices = topology
        .ends()
        .filter(|(address, vertex)| vertex.numa == Some(node) && kept.contains(address));
    let ways: Vec<_> = devices.map(|(_, device)| switches(topology, device)).collect();
    cpu.children = forest(&ways);
    cpu
}

/// The devices' elements below those of their switches, in address order.
fn forest(ways: &[Vec<&Vertex>]) -> Vec<Element> {
    let mut roots: BTreeMap<Place, Element> = BTreeMap::new();
    for way in ways {
        insert(&mut roots, way);
    }
    roots.into_values().collect()
}

fn insert(roots: &mut BTreeMap<Place, Element>, path: &[&Vertex]) {
    let [top, rest @ ..] = path else { return };
    let mut element = roots.entry(top.place).or_insert_with(|| pci(top));
    for vertex in rest {
        let at = vertex.place.to_string();
        let known = element.children.iter().position(|child| child.attribute("busid") == Some(&at));
        let index = known.unwrap_or_else(|| {
            element.children.push(pci(vertex));
            element.children.len() - 1
        });
        element = &mut element.children[index];
    }
}

/// The switches above a device and the device itself, from the top.
fn switches<'g>(topology: &'g Topology, device: &'g Vertex) -> Vec<&'g Vertex> {
    let above = |vertex: &&Vertex| topology.graph.switch_above(vertex.place);
    let mut path: Vec<&Vertex> = successors(Some(device), above).collect();
    path.reverse();
    path
}

fn pci(vertex: &Vertex) -> Element {
    let class = vertex.class.unwrap_or(PCI_BRIDGE);
    let mut element =
        Element::new("pci").with("busid", &vertex.place).with("class", &format!("{class:#08x}"));
    if let Some((vendor, device)) = vertex.id {
        element = element
            .with("vendor", &format!("{vendor:#06x}"))
            .with("device", &format!("{device:#06x}"));
    }
    match vertex.max_link {
        Some(PcieLink { megatransfers, width }) => {
            let speed = format!("{}.{}", megatransfers / 1_000, megatransfers % 1_000 / 100);
            element.with("link_speed", &format!("{speed} GT/s PCIe")).with("link_width", &width)
        }
        // NCCL reads missing attributes from sysfs, which does not have a switch that only an
        // overlay knows.
        None if vertex.role == Role::Switch => {
            element.with("link_speed", &"").with("link_width", &0)
        }
        None => element,
    }
}
