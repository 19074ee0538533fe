//! Builds the parts of a graph, identities and anomalies from facts and overlays. It is pure: the
//! same input gives the same output, and no input fails.

mod acs;
mod devices;
mod gdr;
mod links;
mod nics;
mod numa;
mod overlay;
mod running;
mod switches;

use std::collections::BTreeMap;
use std::error::Error;
use std::iter::successors;

use crate::class::is_gpu;
use crate::graph::{Branch, NumaPart, Parts, Place, SocketPart};
use crate::nic_role::FactsOfNics;
use crate::snapshot::{NumaNodeFacts, SocketFacts};
use crate::{
    Accelerator, Acs, Anomaly, AnomalyKind, DeviceIdentity, Evidence, NcclXml, NumaNode, Overlay,
    PciAddress, Snapshot,
};

/// The result of building, before distances are known.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) parts: Parts,
    pub(crate) identities: BTreeMap<PciAddress, DeviceIdentity>,
    pub(crate) nics: FactsOfNics,
    /// The ACS mode of the ports above each NIC.
    pub(crate) acs: BTreeMap<PciAddress, Acs>,
    /// Memory of NUMA nodes in bytes; it differs between equal machines.
    pub(crate) memory: BTreeMap<NumaNode, u64>,
    /// The topology file on the machine for NCCL.
    pub(crate) nccl_file: Option<NcclXml>,
    pub(crate) anomalies: Vec<Anomaly>,
}

pub(crate) use gdr::{Verdicts, verdicts};
pub(crate) use overlay::build as build_overlay;

/// The PCI tree by place, while it is built.
type Branches = BTreeMap<Place, Branch>;

pub(crate) fn build(
    snapshot: &Snapshot,
    overlays: &[&Overlay],
    accelerators: &[Accelerator],
) -> Built {
    let mut anomalies = snapshot.anomalies.clone();
    let file = nccl_file(snapshot, &mut anomalies);
    // A file on the machine itself takes precedence over the cloud's description of its size.
    let of_file = file.as_ref().map(Overlay::from_nccl_xml);
    let overlays: Vec<&Overlay> = of_file.iter().chain(overlays.iter().copied()).collect();
    let overlays = overlays.as_slice();
    let mut branches = Branches::new();
    devices::add(snapshot, accelerators, &mut branches, &mut anomalies);
    for overlay in overlays {
        switches::add(overlay, snapshot, &mut branches, &mut anomalies);
    }
    numa::settle(snapshot, overlays, &mut branches, &mut anomalies);
    running::settle(snapshot, &mut branches);
    let gpu_links = links::between_gpus(snapshot, overlays, &branches, &mut anomalies);
    anomalies.extend(snapshot.gpus.iter().filter_map(|gpu| absent(gpu.address, snapshot)));
    anomalies.sort();
    anomalies.dedup();
    Built {
        identities: identities(snapshot, &branches),
        nics: nics::facts(snapshot, overlays, &branches),
        acs: acs::of_nics(snapshot, &branches),
        memory: memory(&snapshot.numa_nodes),
        nccl_file: file,
        anomalies,
        parts: Parts {
            branches: branches.into_values().collect(),
            numa: numa_parts(snapshot),
            sockets: snapshot.sockets.iter().map(socket_part).collect(),
            gpu_links,
        },
    }
}

fn nccl_file(snapshot: &Snapshot, anomalies: &mut Vec<Anomaly>) -> Option<NcclXml> {
    let file = snapshot.nccl_file.as_ref()?;
    match NcclXml::parse(&file.text) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            anomalies.push(Anomaly::new(AnomalyKind::Malformed, &file.path, chain(&error)));
            None
        }
    }
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn memory(nodes: &[NumaNodeFacts]) -> BTreeMap<NumaNode, u64> {
    nodes.iter().filter_map(|facts| Some((facts.node, facts.memory_bytes?))).collect()
}

/// The nodes with CPUs, memory or devices, with their distances. GB200 has seven more nodes per
/// GPU, reserved for MIG instances.
fn numa_parts(snapshot: &Snapshot) -> Vec<NumaPart> {
    let is_used = |facts: &NumaNodeFacts| {
        !facts.cpus.is_empty()
            || facts.memory_bytes.is_some_and(|bytes| bytes > 0)
            || snapshot.pci.iter().any(|function| function.numa_node == Some(facts.node))
    };
    let used: Vec<bool> = snapshot.numa_nodes.iter().map(is_used).collect();
    let nodes = snapshot.numa_nodes.iter().zip(&used).filter(|(_, is_used)| **is_used);
    nodes
        .map(|(facts, _)| {
            let mut part = numa_part(facts, &snapshot.sockets);
            let mut at = used.iter();
            // Distances beyond the list of nodes are a firmware error and stay as they are.
            part.distances.retain(|_| at.next().copied().unwrap_or(true));
            part
        })
        .collect()
}

fn numa_part(facts: &NumaNodeFacts, sockets: &[SocketFacts]) -> NumaPart {
    let NumaNodeFacts { node, cpus, distances, .. } = facts.clone();
    let first = cpus.first();
    let socket = sockets.iter().find(|facts| first.is_some_and(|cpu| facts.cpus.contains(cpu)));
    let socket = socket.map(|facts| facts.socket);
    NumaPart { node, cpus, distances, socket, evidence: Evidence::Sysfs }
}

fn socket_part(facts: &SocketFacts) -> SocketPart {
    let SocketFacts { socket, cpus } = facts.clone();
    SocketPart { socket, cpus, evidence: Evidence::Sysfs }
}

fn identities(snapshot: &Snapshot, branches: &Branches) -> BTreeMap<PciAddress, DeviceIdentity> {
    let addresses = branches.values().filter_map(|branch| branch.vertex.endpoint());
    addresses.map(|address| (address, DeviceIdentity::new(address, snapshot))).collect()
}

/// The driver lists a GPU that PCI does not show as a GPU.
fn absent(address: PciAddress, snapshot: &Snapshot) -> Option<Anomaly> {
    let detail = "its driver lists this GPU, but it is not on the PCI bus";
    let is_there = snapshot.function(address).is_some_and(|function| is_gpu(function.class));
    (!is_there).then(|| about(address, AnomalyKind::GpuAbsent, detail))
}

/// An anomaly about one device.
fn about(address: PciAddress, kind: AnomalyKind, detail: impl Into<String>) -> Anomaly {
    Anomaly::new(kind, address.to_string(), detail)
}
