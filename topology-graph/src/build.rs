//! Facts and overlay into a shape, identities and anomalies. Pure: the same
//! input gives the same output, and no input fails.

mod devices;
mod gdr;
mod numa;
mod overlay;
mod switches;

use std::collections::BTreeMap;

use crate::identity::Identity;
use crate::shape::{NumaVertex, NvLink, Place, Role, Shape, Vertex};
use crate::{Anomaly, AnomalyKind, NumaNodeFacts, Overlay, PciAddress, Snapshot};

/// Base class of network controllers, `include/linux/pci_ids.h`.
const NETWORK: u32 = 0x02;

/// What was built, before distances are known.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) shape: Shape,
    pub(crate) identities: BTreeMap<PciAddress, Identity>,
    pub(crate) anomalies: Vec<Anomaly>,
}

pub(crate) use gdr::{Verdicts, verdicts};
pub(crate) use overlay::build as build_overlay;

/// Vertices by place while they are collected.
type Vertices = BTreeMap<Place, Vertex>;

pub(crate) fn build(snapshot: &Snapshot, overlay: Option<&Overlay>) -> Built {
    let mut anomalies = snapshot.anomalies.clone();
    let mut vertices = Vertices::new();
    devices::add(snapshot, &mut vertices, &mut anomalies);
    if let Some(overlay) = overlay {
        switches::add(overlay, snapshot, &mut vertices, &mut anomalies);
    }
    numa::settle(snapshot, overlay, &mut vertices, &mut anomalies);
    let nvlinks = overlay.map(|overlay| nvlinks(overlay, &vertices)).unwrap_or_default();
    anomalies.extend(snapshot.gpus.iter().filter_map(|gpu| absent(gpu.address, &vertices)));
    anomalies.sort();
    anomalies.dedup();
    Built {
        identities: identities(snapshot, &vertices),
        shape: Shape {
            vertices: vertices.into_values().collect(),
            numa: snapshot.numa_nodes.iter().map(numa_vertex).collect(),
            nvlinks,
        },
        anomalies,
    }
}

fn numa_vertex(facts: &NumaNodeFacts) -> NumaVertex {
    let NumaNodeFacts { node, cpus, distances, socket } = facts.clone();
    NumaVertex { node, cpus, distances, socket }
}

/// NVLinks between GPUs that the machine has.
fn nvlinks(overlay: &Overlay, vertices: &Vertices) -> Vec<NvLink> {
    let is_gpu = |address: PciAddress| {
        vertices.get(&Place::Function(address)).is_some_and(|vertex| vertex.role == Role::Gpu)
    };
    let known = overlay.nvlinks.iter().filter(|((a, b), _)| is_gpu(*a) && is_gpu(*b));
    known
        .map(|(&gpus, &links)| NvLink { gpus, links, evidence: overlay.evidence.clone() })
        .collect()
}

fn identities(snapshot: &Snapshot, vertices: &Vertices) -> BTreeMap<PciAddress, Identity> {
    let devices = vertices.values().filter(|vertex| vertex.role.is_device());
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
