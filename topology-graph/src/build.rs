//! Facts and overlay into a shape, identities and anomalies. Pure: the same
//! input gives the same output, and no input fails.

mod devices;
mod gdr;
mod links;
mod numa;
mod overlay;
mod state;
mod switches;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::iter::successors;

use crate::identity::Identity;
use crate::shape::{GpuLink, NumaVertex, Place, Role, Shape, SocketVertex, Vertex};
use crate::snapshot::{NumaNodeFacts, SocketFacts};
use crate::{Anomaly, AnomalyKind, Evidence, NcclXml, NumaNode, Overlay, PciAddress, Snapshot};

/// What was built, before distances are known.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) shape: Shape,
    /// NVMe controllers, and the bridges above only them.
    pub(crate) storage: Vec<Vertex>,
    pub(crate) identities: BTreeMap<PciAddress, Identity>,
    pub(crate) nic_states: NicStates,
    /// Memory of NUMA nodes in bytes, which differs between equal machines.
    pub(crate) memory: BTreeMap<NumaNode, u64>,
    pub(crate) anomalies: Vec<Anomaly>,
}

pub(crate) use gdr::{Verdicts, verdicts};
pub(crate) use overlay::build as build_overlay;
pub(crate) use state::{NicState, NicStates};

/// Vertices by place while they are collected.
type Vertices = BTreeMap<Place, Vertex>;

pub(crate) fn build(snapshot: &Snapshot, overlays: &[&Overlay]) -> Built {
    let mut anomalies = snapshot.anomalies.clone();
    let file = nccl_file(snapshot, &mut anomalies);
    // What somebody put on the machine itself is nearer to it than what a cloud's
    // machines of its size are like.
    let overlays: Vec<&Overlay> = file.iter().chain(overlays.iter().copied()).collect();
    let overlays = overlays.as_slice();
    let mut vertices = Vertices::new();
    devices::add(snapshot, &mut vertices, &mut anomalies);
    for overlay in overlays {
        switches::add(overlay, snapshot, &mut vertices, &mut anomalies);
    }
    numa::settle(snapshot, overlays, &mut vertices, &mut anomalies);
    let gpu_links = links::between_gpus(snapshot, overlays, &vertices, &mut anomalies);
    anomalies.extend(snapshot.gpus.iter().filter_map(|gpu| absent(gpu.address, &vertices)));
    anomalies.sort();
    anomalies.dedup();
    Built {
        identities: identities(snapshot, &vertices),
        nic_states: state::of_nics(snapshot, &vertices),
        memory: memory(&snapshot.numa_nodes),
        anomalies,
        ..split(vertices, snapshot, gpu_links)
    }
}

fn nccl_file(snapshot: &Snapshot, anomalies: &mut Vec<Anomaly>) -> Option<Overlay> {
    let file = snapshot.nccl_file.as_ref()?;
    let parsed = NcclXml::parse(&file.text);
    let malformed = |error| Anomaly::new(AnomalyKind::Malformed, &file.path, chain(&error));
    let parsed = parsed.map_err(|error| anomalies.push(malformed(error)));
    Some(Overlay::from_nccl_xml(&parsed.ok()?))
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The shape of what GPUs and NICs hang off, and apart from it NVMe controllers with
/// what is above only them: volumes come and go.
fn split(vertices: Vertices, snapshot: &Snapshot, gpu_links: Vec<GpuLink>) -> Built {
    let parent = |place: &Place| vertices.get(place).and_then(|vertex| vertex.parent);
    let ends = vertices.values().filter(|vertex| {
        vertex.role.is_device() || matches!(vertex.role, Role::DataPath | Role::Switch)
    });
    let stays: BTreeSet<Place> =
        ends.flat_map(|vertex| successors(Some(vertex.place), parent)).collect();
    let (vertices, storage) =
        vertices.into_values().partition(|vertex| stays.contains(&vertex.place));
    let numa = snapshot.numa_nodes.iter().map(|node| numa_vertex(node, &snapshot.sockets));
    let sockets = snapshot.sockets.iter().map(socket_vertex);
    let shape = Shape { vertices, numa: numa.collect(), sockets: sockets.collect(), gpu_links };
    Built { shape, storage, ..Built::default() }
}

fn memory(nodes: &[NumaNodeFacts]) -> BTreeMap<NumaNode, u64> {
    nodes.iter().filter_map(|facts| Some((facts.node, facts.memory_bytes?))).collect()
}

fn numa_vertex(facts: &NumaNodeFacts, sockets: &[SocketFacts]) -> NumaVertex {
    let NumaNodeFacts { node, cpus, distances, .. } = facts.clone();
    let first = cpus.first();
    let socket = sockets.iter().find(|facts| first.is_some_and(|cpu| facts.cpus.contains(cpu)));
    let socket = socket.map(|facts| facts.socket);
    NumaVertex { node, cpus, distances, socket, evidence: Evidence::Sysfs }
}

fn socket_vertex(facts: &SocketFacts) -> SocketVertex {
    let SocketFacts { socket, cpus } = facts.clone();
    SocketVertex { socket, cpus, evidence: Evidence::Sysfs }
}

fn identities(snapshot: &Snapshot, vertices: &Vertices) -> BTreeMap<PciAddress, Identity> {
    let devices = vertices.values().filter(|vertex| vertex.role.is_endpoint());
    let addresses = devices.filter_map(|vertex| match vertex.place {
        Place::Function(address) => Some(address),
        Place::Root(_) => None,
    });
    addresses.map(|address| (address, Identity::of(address, snapshot))).collect()
}

/// Its driver lists a GPU that is no GPU in PCI.
fn absent(address: PciAddress, vertices: &Vertices) -> Option<Anomaly> {
    let known = vertices.get(&Place::Function(address)).map(|vertex| vertex.role);
    let detail = "its driver lists this GPU, and the PCI bus does not have it";
    (known != Some(Role::Gpu)).then(|| about(address, AnomalyKind::GpuAbsent, detail))
}

/// An anomaly about one device.
fn about(address: PciAddress, kind: AnomalyKind, detail: impl Into<String>) -> Anomaly {
    Anomaly::new(kind, address.to_string(), detail)
}
