//! The NUMA node of each GPU and NIC, from the kernel or else from an overlay.
//!
//! A node without CPUs (HBM of Grace's GPUs, CXL memory) cannot run a process. The nearest node
//! with CPUs, by the SLIT, replaces it.

use super::{Branches, about};
use crate::graph::Vertex;
use crate::snapshot::{NumaNodeFacts, PciFunction};
use crate::{Anomaly, AnomalyKind, Evidence, NumaNode, Overlay, PciAddress, Snapshot};

/// A node and its source.
type Known = (NumaNode, Evidence);

pub(super) fn settle(
    snapshot: &Snapshot,
    overlays: &[&Overlay],
    branches: &mut Branches,
    anomalies: &mut Vec<Anomaly>,
) {
    for vertex in branches.values_mut().map(|branch| &mut branch.vertex) {
        let Some(address) = vertex.endpoint() else { continue };
        let kernel = from_kernel(address, vertex, &snapshot.numa_nodes, anomalies)
            .or_else(|| from_local_cpus(snapshot.function(address)?, &snapshot.numa_nodes));
        let told = overlays.iter().filter_map(|overlay| from_overlay(address, overlay));
        let known = kernel.into_iter().chain(told);
        let known = first(address, known, anomalies).or_else(|| only_node(&snapshot.numa_nodes));
        // A volume has a NUMA node only if it is a disk in the machine, so a missing one is no
        // anomaly.
        if known.is_none() && vertex.role.is_device() {
            let detail = "neither sysfs nor an overlay gives its NUMA node";
            anomalies.push(about(address, AnomalyKind::NumaUnknown, detail));
        }
        set(vertex, known);
    }
}

/// The first source wins; conflicting sources are recorded as anomalies.
fn first(
    address: PciAddress,
    mut told: impl Iterator<Item = Known>,
    anomalies: &mut Vec<Anomaly>,
) -> Option<Known> {
    let (node, evidence) = told.next()?;
    for (other, source) in told.filter(|(other, _)| *other != node) {
        let detail = format!("{evidence} says NUMA node {node}, {source} says {other}");
        anomalies.push(about(address, AnomalyKind::NumaDisagrees, detail));
    }
    Some((node, evidence))
}

fn set(vertex: &mut Vertex, known: Option<Known>) {
    let (numa, evidence) = known.unzip();
    vertex.numa = numa;
    vertex.numa_evidence = evidence.unwrap_or_default();
}

fn from_overlay(address: PciAddress, overlay: &Overlay) -> Option<Known> {
    let node = overlay.device(address)?.numa?;
    Some((node, overlay.evidence.clone()))
}

fn from_kernel(
    address: PciAddress,
    vertex: &Vertex,
    nodes: &[NumaNodeFacts],
    anomalies: &mut Vec<Anomaly>,
) -> Option<Known> {
    let node = vertex.numa?;
    // A kernel without NUMA shows no nodes, but its devices still name one.
    if nodes.is_empty() {
        return Some((node, Evidence::Sysfs));
    }
    let Some(facts) = nodes.iter().find(|facts| facts.node == node) else {
        let detail = format!("sysfs gives NUMA node {node}, which does not exist");
        anomalies.push(about(address, AnomalyKind::NumaAbsent, detail));
        return None;
    };
    if !facts.cpus.is_empty() || nodes.iter().all(|facts| facts.cpus.is_empty()) {
        return Some((node, Evidence::Sysfs));
    }
    let nearest = nearest_with_cpus(facts, nodes);
    let taken = nearest.map_or_else(|| "none".to_owned(), |node| node.to_string());
    let detail = format!("NUMA node {node} has no CPUs; nearest with CPUs by the SLIT: {taken}");
    anomalies.push(about(address, AnomalyKind::NumaWithoutCpus, detail));
    nearest.map(|node| (node, Evidence::Slit))
}

/// The only node among several whose CPUs include all CPUs that the kernel calls local.
fn from_local_cpus(function: &PciFunction, nodes: &[NumaNodeFacts]) -> Option<Known> {
    let local = function.local_cpus.as_ref().filter(|cpus| !cpus.is_empty())?;
    let node = nodes.iter().find(|facts| facts.cpus.contains_all(local))?;
    (nodes.len() > 1).then_some((node.node, Evidence::LocalCpus))
}

/// The nearest node with CPUs. `None` if the SLIT is missing or two nodes are equally near.
fn nearest_with_cpus(from: &NumaNodeFacts, nodes: &[NumaNodeFacts]) -> Option<NumaNode> {
    let mut near: Vec<(u32, NumaNode)> = nodes
        .iter()
        .zip(&from.distances)
        .filter(|(facts, _)| !facts.cpus.is_empty())
        .map(|(facts, distance)| (*distance, facts.node))
        .collect();
    near.sort_unstable();
    match near.as_slice() {
        [(_, node)] => Some(*node),
        [(first, node), (second, _), ..] if first < second => Some(*node),
        _ => None,
    }
}

/// On a machine with one NUMA node, everything is on it.
fn only_node(nodes: &[NumaNodeFacts]) -> Option<Known> {
    match nodes {
        [facts] => Some((facts.node, Evidence::OnlyNode)),
        _ => None,
    }
}
