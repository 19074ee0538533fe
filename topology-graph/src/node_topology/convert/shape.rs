//! Converts the shape between the model and its Kubernetes form, and computes its hash.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::super::{
    GpuLinkKind, GpuLinkSpec, NumaNodeSpec, ShapeSpec, SocketSpec, VertexRole, VertexSpec,
};
use super::value::{
    SpecError, evidence, evidence_text, hex, id, link, link_text, optional, place, unexpected,
    value,
};
use crate::class::PCI_BRIDGE;
use crate::graph::{
    Branch, Fabric, GpuLink, Graph, Mesh, NumaPart, Parts, Place, Role, SocketPart, Vertex,
};
use crate::{NumaNode, PciAddress, ShapeHash};

/// The maximum number of GPUs, since every pair may be a link. No machine has more.
const MOST_GPUS: usize = 512;
/// `MAX_NUMNODES` of the kernel, since every pair has a distance.
const MOST_NUMA_NODES: usize = 1024;

impl Graph {
    /// The first eight bytes of the SHA-256 of the shape's JSON without its hash.
    pub(crate) fn hash(&self) -> ShapeHash {
        let json = serde_json::to_vec(&shape_spec(self))
            .expect("strings, numbers and lists have a JSON form");
        let digest = Sha256::digest(json);
        ShapeHash(digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte)))
    }
}

/// The shape with no hash.
pub(super) fn shape_spec(graph: &Graph) -> ShapeSpec {
    let numa_nodes = vertices_in_shape(graph, Role::NumaNode);
    let sockets = vertices_in_shape(graph, Role::Socket);
    ShapeSpec {
        hash: String::new(),
        vertices: vertex_specs(graph, true),
        numa_nodes: numa_nodes.filter_map(|vertex| numa_spec(vertex, graph)).collect(),
        sockets: sockets.filter_map(socket_spec).collect(),
        gpu_links: graph.meshes().iter().map(gpu_link_spec).collect(),
    }
}

fn vertices_in_shape(graph: &Graph, role: Role) -> impl Iterator<Item = &Vertex> {
    graph.vertices().filter(move |vertex| vertex.role == role && vertex.in_shape)
}

/// The PCI vertices with this value of `in_shape`.
pub(super) fn vertex_specs(graph: &Graph, in_shape: bool) -> Vec<VertexSpec> {
    let vertices = graph.vertices().filter(|vertex| vertex.in_shape == in_shape);
    vertices.filter_map(|vertex| vertex_spec(vertex, graph)).collect()
}

/// All parts except the vertices of the PCI tree.
pub(super) fn parts_from(spec: &ShapeSpec) -> Result<Parts, SpecError> {
    if spec.numa_nodes.len() > MOST_NUMA_NODES {
        let nodes = format!("{} nodes", spec.numa_nodes.len());
        return Err(unexpected("shape.numaNodes", &nodes));
    }
    let links = spec.gpu_links.iter().map(gpu_links_from).collect::<Result<Vec<_>, _>>()?;
    let mut gpu_links: Vec<GpuLink> = links.into_iter().flatten().collect();
    gpu_links.sort_by_key(|link| link.gpus);
    gpu_links.dedup_by_key(|link| link.gpus);
    Ok(Parts {
        branches: Vec::new(),
        numa: spec.numa_nodes.iter().map(numa_from).collect::<Result<_, _>>()?,
        sockets: spec.sockets.iter().map(socket_from).collect::<Result<_, _>>()?,
        gpu_links,
    })
}

/// The vertices of the PCI tree and their root buses.
pub(super) fn branches_from<'s>(
    specs: impl Iterator<Item = &'s VertexSpec>,
) -> Result<Vec<Branch>, SpecError> {
    let mut branches = specs.map(branch_from).collect::<Result<Vec<_>, _>>()?;
    let parents = branches.iter().filter_map(|branch| branch.parent);
    let roots: BTreeSet<Place> = parents.filter(|place| matches!(place, Place::Root(_))).collect();
    branches.extend(roots.into_iter().map(|root| Branch::new(root, Role::HostBridge)));
    Ok(branches)
}

/// `None` for a root bus, which has no facts, and for vertices outside the PCI tree.
fn vertex_spec(vertex: &Vertex, graph: &Graph) -> Option<VertexSpec> {
    Some(VertexSpec {
        at: vertex.place.to_string(),
        under: graph.parent(vertex.place).map(|parent| parent.place.to_string()),
        role: role_spec(vertex.role)?,
        class: vertex.class.filter(|_| usual_class(vertex.role) != vertex.class).map(class_text),
        // The makers of root ports and switches do not matter, except inside of a device, where they
        // decide about paths.
        id: vertex
            .id
            .filter(|_| !vertex.role.is_port() || graph.is_inside_device(vertex.place))
            .map(|(vendor, device)| format!("{vendor:04x}:{device:04x}")),
        numa: vertex.numa.map(|node| node.0),
        rdma: vertex.rdma,
        link_layer: vertex.link_layer.map(|layer| layer.to_string()),
        max_link: vertex.max_link.map(link_text),
        data_path: graph.data_path(vertex.place).map(|mover| mover.place.to_string()),
        physical_function: vertex.physical_function.map(|place| place.to_string()),
        evidence: evidence_text(&vertex.evidence),
        numa_evidence: evidence_text(&vertex.numa_evidence),
    })
}

fn branch_from(spec: &VertexSpec) -> Result<Branch, SpecError> {
    let class = optional(spec.class.as_ref(), |text| hex("shape.vertices.class", text, 6))?;
    let role = spec.role.into();
    let vertex = Vertex {
        class: class.or_else(|| usual_class(role)),
        id: optional(spec.id.as_ref(), |text| id("shape.vertices.id", text))?,
        numa: spec.numa.map(NumaNode),
        link_layer: optional(spec.link_layer.as_ref(), |text| {
            value("shape.vertices.linkLayer", text)
        })?,
        rdma: spec.rdma,
        max_link: optional(spec.max_link.as_ref(), |text| link("shape.vertices.maxLink", text))?,
        physical_function: optional_place(
            "shape.vertices.physicalFunction",
            spec.physical_function.as_ref(),
        )?,
        evidence: evidence("shape.vertices.evidence", spec.evidence.as_ref())?,
        numa_evidence: evidence("shape.vertices.numaEvidence", spec.numa_evidence.as_ref())?,
        ..Vertex::new(place("shape.vertices.at", &spec.at)?, role)
    };
    Ok(Branch {
        vertex,
        parent: optional_place("shape.vertices.under", spec.under.as_ref())?,
        data_path: optional_place("shape.vertices.dataPath", spec.data_path.as_ref())?,
    })
}

fn optional_place(field: &'static str, text: Option<&String>) -> Result<Option<Place>, SpecError> {
    optional(text, |text| place(field, text))
}

/// The class of a vertex without a written class: half of all vertices are bridges.
fn usual_class(role: Role) -> Option<u32> {
    role.is_port().then_some(PCI_BRIDGE)
}

fn class_text(class: u32) -> String {
    format!("{class:06x}")
}

fn numa_spec(vertex: &Vertex, graph: &Graph) -> Option<NumaNodeSpec> {
    let Place::Numa(node) = vertex.place else { return None };
    Some(NumaNodeSpec {
        node: node.0,
        cpus: vertex.cpus.to_string(),
        distances: graph.slit(node),
        socket: graph.socket_of(node),
        evidence: evidence_text(&vertex.evidence),
    })
}

fn numa_from(spec: &NumaNodeSpec) -> Result<NumaPart, SpecError> {
    Ok(NumaPart {
        node: NumaNode(spec.node),
        cpus: value("shape.numaNodes.cpus", &spec.cpus)?,
        distances: spec.distances.clone(),
        socket: spec.socket,
        evidence: evidence("shape.numaNodes.evidence", spec.evidence.as_ref())?,
    })
}

fn socket_spec(vertex: &Vertex) -> Option<SocketSpec> {
    let Place::Socket(socket) = vertex.place else { return None };
    let (cpus, evidence) = (vertex.cpus.to_string(), evidence_text(&vertex.evidence));
    Some(SocketSpec { socket, cpus, evidence })
}

fn socket_from(spec: &SocketSpec) -> Result<SocketPart, SpecError> {
    Ok(SocketPart {
        socket: spec.socket,
        cpus: value("shape.sockets.cpus", &spec.cpus)?,
        evidence: evidence("shape.sockets.evidence", spec.evidence.as_ref())?,
    })
}

fn gpu_link_spec(mesh: &Mesh) -> GpuLinkSpec {
    let (kind, links, hops, bandwidth) = match mesh.fabric {
        Fabric::NvLink { links } => (GpuLinkKind::Nvlink, Some(links), None, None),
        Fabric::Xgmi { hops, bandwidth } => (GpuLinkKind::Xgmi, None, hops, bandwidth),
    };
    let gpus = mesh.gpus.iter().map(ToString::to_string).collect();
    GpuLinkSpec { gpus, kind, links, hops, bandwidth, evidence: evidence_text(&mesh.evidence) }
}

fn gpu_links_from(spec: &GpuLinkSpec) -> Result<Vec<GpuLink>, SpecError> {
    let fabric = match spec.kind {
        GpuLinkKind::Nvlink => Fabric::NvLink {
            links: spec.links.ok_or_else(|| unexpected("shape.gpuLinks.links", ""))?,
        },
        GpuLinkKind::Xgmi => Fabric::Xgmi { hops: spec.hops, bandwidth: spec.bandwidth },
    };
    let evidence = evidence("shape.gpuLinks.evidence", spec.evidence.as_ref())?;
    let gpus = spec.gpus.iter().map(|gpu| value("shape.gpuLinks.gpus", gpu));
    let gpus: Vec<PciAddress> = gpus.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect();
    if gpus.len() > MOST_GPUS {
        return Err(unexpected("shape.gpuLinks.gpus", &format!("{} GPUs", gpus.len())));
    }
    let pairs = gpus.iter().enumerate();
    let pairs = pairs.flat_map(|(index, a)| gpus.iter().skip(index + 1).map(|b| (*a, *b)));
    Ok(pairs.map(|gpus| GpuLink { gpus, fabric, evidence: evidence.clone() }).collect())
}

fn role_spec(role: Role) -> Option<VertexRole> {
    match role {
        Role::Socket | Role::NumaNode | Role::HostBridge => None,
        Role::RootPort | Role::SwitchPort => Some(VertexRole::Port),
        Role::Switch => Some(VertexRole::Switch),
        Role::Gpu => Some(VertexRole::Gpu),
        Role::Nic => Some(VertexRole::Nic),
        Role::DataPath => Some(VertexRole::DataPath),
        Role::Nvme => Some(VertexRole::Nvme),
    }
}

impl From<VertexRole> for Role {
    fn from(role: VertexRole) -> Self {
        match role {
            // The kind of port follows from its parent.
            VertexRole::Port => Self::SwitchPort,
            VertexRole::Switch => Self::Switch,
            VertexRole::Gpu => Self::Gpu,
            VertexRole::Nic => Self::Nic,
            VertexRole::DataPath => Self::DataPath,
            VertexRole::Nvme => Self::Nvme,
        }
    }
}
