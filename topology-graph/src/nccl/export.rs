//! Writes a graph as an NCCL topology file, usable as `NCCL_TOPO_FILE`.
//!
//! The file has only `<cpu>` and `<pci>` elements, and `<xgmi>` between AMD's GPUs: NCCL adds
//! everything else that it can read itself (its maintainers' advice for virtual machines). The elements
//! are those that NCCL and RCCL make of the same tree, so both find the same paths by the file as without
//! it. A device with unknown NUMA node is omitted, since NCCL would trust any place given.

use std::collections::{BTreeMap, BTreeSet};

use super::{Element, NcclXml, VERSION, VERSION_OF_RCCL, rails};
use crate::class::{DISPLAY_OTHER, PCI_BRIDGE};
use crate::graph::{Fabric, GpuLink, Place, Role, Vertex};
use crate::vendor::AMD;
use crate::{Evidence, NumaNode, PciAddress, PcieLink, Topology};

/// The graph as an NCCL topology file.
pub fn nccl_xml(topology: &Topology) -> String {
    let all = topology.ends().map(|(address, _)| address).collect();
    NcclXml { system: system(topology, &all) }.write()
}

/// The NCCL topology file for these devices. If the machine has a file for NCCL, that file with the
/// devices that it lacks; NCCL ignores the others. Otherwise the part of the graph with these devices,
/// their ancestors and their NUMA nodes: `None` if none of them has a NUMA node, since such a file
/// would be useless to NCCL. Whether containers need it is a question of [`NcclFileNeed`](crate::NcclFileNeed).
pub fn nccl_xml_of(topology: &Topology, devices: &BTreeSet<PciAddress>) -> Option<String> {
    if let Some(file) = &topology.nccl_file {
        return Some(file.completed(topology, devices).write());
    }
    let mut system = system(topology, devices);
    system.set_links(&rails::links(topology, devices));
    (!system.children.is_empty()).then(|| NcclXml { system }.write())
}

fn system(topology: &Topology, kept: &BTreeSet<PciAddress>) -> Element {
    let mut system = Element::new("system").with("version", &version(topology, kept));
    let devices = topology.ends().filter(|(address, _)| kept.contains(address));
    let nodes: BTreeSet<NumaNode> = devices.filter_map(|(_, vertex)| vertex.numa).collect();
    system.children = nodes.into_iter().map(|node| cpu(topology, node, kept)).collect();
    system
}

/// The version for these devices: AMD's GPUs are used by RCCL.
pub(super) fn version(topology: &Topology, devices: &BTreeSet<PciAddress>) -> &'static str {
    let mut gpus = topology.gpus().iter().filter(|gpu| devices.contains(&gpu.address));
    if gpus.any(|gpu| gpu.vendor == AMD) { VERSION_OF_RCCL } else { VERSION }
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
    let ways: Vec<_> = devices.map(|(_, device)| elements(topology, device)).collect();
    cpu.children = forest(topology, &ways);
    let mut links = topology.graph.gpu_links();
    links.retain(|link| kept.contains(&link.gpus.0) && kept.contains(&link.gpus.1));
    add_xgmi(&mut cpu, &links);
    cpu
}

/// Adds the XGMI links between neighbours to the elements of their GPUs. RCCL counts links; those of
/// the least bandwidth are single.
fn add_xgmi(element: &mut Element, links: &[GpuLink]) {
    let neighbours = links.iter().filter_map(|link| match link.fabric {
        Fabric::Xgmi { hops: None | Some(1), bandwidth } => Some((link.gpus, bandwidth)),
        _ => None,
    });
    let neighbours: Vec<_> = neighbours.collect();
    let single = neighbours.iter().filter_map(|(_, bandwidth)| *bandwidth).min();
    for child in &mut element.children {
        let own = child.attribute("busid").and_then(|at| at.parse::<PciAddress>().ok());
        let peers = neighbours.iter().filter_map(|(gpus, bandwidth)| match own {
            Some(own) if gpus.0 == own => Some((gpus.1, bandwidth)),
            Some(own) if gpus.1 == own => Some((gpus.0, bandwidth)),
            _ => None,
        });
        let peers: Vec<Element> = peers
            .map(|(peer, bandwidth)| {
                let count = bandwidth.zip(single).map_or(1, |(all, one)| (all / one.max(1)).max(1));
                Element::new("xgmi")
                    .with("target", &peer)
                    .with("count", &count)
                    .with("tclass", &format!("{DISPLAY_OTHER:#08x}"))
            })
            .collect();
        if !peers.is_empty() {
            child.children.push(Element { children: peers, ..Element::new("gpu") });
        }
        add_xgmi(child, links);
    }
}

/// The devices' elements below those of their switches, in address order.
fn forest(topology: &Topology, ways: &[Vec<&Vertex>]) -> Vec<Element> {
    let mut roots: BTreeMap<Place, Element> = BTreeMap::new();
    for way in ways {
        insert(&mut roots, topology, way);
    }
    roots.into_values().collect()
}

fn insert(roots: &mut BTreeMap<Place, Element>, topology: &Topology, path: &[&Vertex]) {
    let [top, rest @ ..] = path else { return };
    let mut element = roots.entry(top.place).or_insert_with(|| pci(topology, top));
    for vertex in rest {
        let at = vertex.place.to_string();
        let known = element.children.iter().position(|child| child.attribute("busid") == Some(&at));
        let index = known.unwrap_or_else(|| {
            element.children.push(pci(topology, vertex));
            element.children.len() - 1
        });
        element = &mut element.children[index];
    }
}

/// The device and every second bridge above it, from the top, as NCCL climbs (`ncclTopoGetXmlFromSys`).
/// Bridges inside of a device are among them. A whole switch is one vertex.
pub(super) fn elements<'g>(topology: &'g Topology, device: &'g Vertex) -> Vec<&'g Vertex> {
    let chain = topology.graph.chain(device.place);
    let mut path = Vec::new();
    let mut at = 0;
    while let Some(vertex) = chain.get(at).filter(|vertex| vertex.role != Role::HostBridge) {
        path.push(*vertex);
        let is_port = chain.get(at + 1).is_some_and(|above| above.role.is_port());
        at += if is_port { 2 } else { 1 };
    }
    path.reverse();
    path
}

pub(super) fn pci(topology: &Topology, vertex: &Vertex) -> Element {
    let class = vertex.class.unwrap_or(PCI_BRIDGE);
    let mut element =
        Element::new("pci").with("busid", &vertex.place).with("class", &format!("{class:#08x}"));
    if let Some((vendor, device)) = vertex.id {
        element = element
            .with("vendor", &format!("{vendor:#06x}"))
            .with("device", &format!("{device:#06x}"));
    }
    match link(topology, vertex) {
        Some(link) => element.with("link_speed", &link.speed()).with("link_width", &link.width),
        // NCCL reads missing attributes from sysfs, which does not have a switch that only an
        // overlay knows.
        None if vertex.role == Role::Switch => {
            element.with("link_speed", &"").with("link_width", &0)
        }
        None => element,
    }
}

/// The link that both ends support. `None` if the kernel shows only one end: NCCL and RCCL read such links
/// in different ways, so each must read it itself.
fn link(topology: &Topology, vertex: &Vertex) -> Option<PcieLink> {
    let own = vertex.max_link?;
    match topology.graph.parent(vertex.place) {
        Some(above) if above.role.is_port() => Some(own.common(above.max_link?)),
        Some(above) if above.role == Role::HostBridge => None,
        None if vertex.evidence == Evidence::Sysfs => None,
        _ => Some(own),
    }
}
