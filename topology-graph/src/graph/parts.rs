//! The parts of a graph, from facts or a published object: each vertex with its parent.

use std::collections::{BTreeMap, BTreeSet};

use crate::{CpuSet, Evidence, NumaNode, PciAddress};

use super::edge::Fabric;
use super::vertex::{Place, Role, Vertex};

/// All parts of one machine, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) branches: Vec<Branch>,
    pub(crate) numa: Vec<NumaPart>,
    pub(crate) sockets: Vec<SocketPart>,
    pub(crate) gpu_links: Vec<GpuLink>,
}

/// One vertex of the PCI tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) vertex: Vertex,
    /// Its parent.
    pub(crate) parent: Option<Place>,
    /// For a NIC: the function that moves its data, found by vital product data.
    pub(crate) data_path: Option<Place>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumaPart {
    pub(crate) node: NumaNode,
    pub(crate) cpus: CpuSet,
    /// Its row of the SLIT, over all nodes by number.
    pub(crate) distances: Vec<u32>,
    pub(crate) socket: Option<u32>,
    pub(crate) evidence: Evidence,
}

/// One CPU socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketPart {
    pub(crate) socket: u32,
    pub(crate) cpus: CpuSet,
    pub(crate) evidence: Evidence,
}

/// A connection of two GPUs other than PCIe, the lower address first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuLink {
    pub(crate) gpus: (PciAddress, PciAddress),
    pub(crate) fabric: Fabric,
    pub(crate) evidence: Evidence,
}

/// GPUs that are all connected to each other in the same way, other than by PCIe: two, or more
/// through switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mesh {
    pub(crate) gpus: BTreeSet<PciAddress>,
    pub(crate) fabric: Fabric,
    pub(crate) evidence: Evidence,
}

/// Groups links into meshes. GPUs connected by one kind of link form a mesh if every two of them
/// have it; otherwise each link is a separate mesh.
pub(crate) fn meshes(links: &[GpuLink]) -> Vec<Mesh> {
    let mut sorts: BTreeMap<(&Evidence, Fabric), Vec<&GpuLink>> = BTreeMap::new();
    for link in links {
        sorts.entry((&link.evidence, link.fabric)).or_default().push(link);
    }
    let mut meshes = Vec::new();
    for ((evidence, fabric), links) in sorts {
        let mesh = |gpus| Mesh { gpus, fabric, evidence: evidence.clone() };
        for gpus in joined(&links) {
            let inside = links.iter().filter(|link| gpus.contains(&link.gpus.0));
            // Each pair occurs once, so the mesh is complete if there are as many links as pairs.
            if inside.clone().count() == gpus.len() * (gpus.len() - 1) / 2 {
                meshes.push(mesh(gpus));
            } else {
                meshes.extend(inside.map(|link| mesh([link.gpus.0, link.gpus.1].into())));
            }
        }
    }
    meshes
}

/// The sets of GPUs that these links connect, directly or indirectly.
fn joined(links: &[&GpuLink]) -> Vec<BTreeSet<PciAddress>> {
    let mut sets: Vec<BTreeSet<PciAddress>> = Vec::new();
    for link in links {
        let ends = BTreeSet::from([link.gpus.0, link.gpus.1]);
        let (near, apart): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|set| !set.is_disjoint(&ends));
        sets = apart;
        sets.push(near.iter().fold(ends, |all, set| &all | set));
    }
    sets.sort();
    sets
}

impl Branch {
    /// A branch of which only place and role are known. Whether a port belongs to a root or a
    /// switch follows from its parent.
    pub(crate) fn new(place: Place, role: Role) -> Self {
        Self { vertex: Vertex::new(place, role), parent: None, data_path: None }
    }

    pub(crate) fn place(&self) -> Place {
        self.vertex.place
    }

    pub(crate) fn role(&self) -> Role {
        self.vertex.role
    }
}
