//! The shape between the model and its Kubernetes form, and its hash.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::super::{
    GpuLinkKind, GpuLinkSpec, NumaNodeSpec, ShapeSpec, SocketSpec, VertexRole, VertexSpec,
};
use super::value::{
    SpecError, evidence, evidence_text, hex, id, layer, layer_text, link, link_text, optional,
    place, unexpected, value,
};
use crate::class::PCI_BRIDGE;
use crate::shape::{Fabric, GpuLink, NumaVertex, Place, Role, Shape, SocketVertex, Vertex};
use crate::{Evidence, NumaNode, PciAddress, ShapeHash};

/// No machine has more, and each two are a link.
const MOST_GPUS: usize = 512;

impl Shape {
    /// The first eight bytes of the SHA-256 of the shape's JSON without its hash.
    pub(crate) fn hash(&self) -> ShapeHash {
        let json = serde_json::to_vec(&shape_spec(self))
            .expect("strings, numbers and lists have a JSON form");
        let digest = Sha256::digest(json);
        ShapeHash(digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte)))
    }
}

/// The shape with no hash.
pub(super) fn shape_spec(shape: &Shape) -> ShapeSpec {
    ShapeSpec {
        hash: String::new(),
        vertices: shape.vertices.iter().filter_map(vertex_spec).collect(),
        numa_nodes: shape.numa.iter().map(numa_spec).collect(),
        sockets: shape.sockets.iter().map(socket_spec).collect(),
        gpu_links: gpu_link_specs(&shape.gpu_links),
    }
}

pub(super) fn shape_from(spec: &ShapeSpec) -> Result<Shape, SpecError> {
    let links = spec.gpu_links.iter().map(gpu_links_from).collect::<Result<Vec<_>, _>>()?;
    let mut gpu_links: Vec<GpuLink> = links.into_iter().flatten().collect();
    gpu_links.sort_by_key(|link| link.gpus);
    gpu_links.dedup_by_key(|link| link.gpus);
    Ok(Shape {
        vertices: vertices_from(&spec.vertices, &BTreeSet::new())?,
        numa: spec.numa_nodes.iter().map(numa_from).collect::<Result<_, _>>()?,
        sockets: spec.sockets.iter().map(socket_from).collect::<Result<_, _>>()?,
        gpu_links,
    })
}

/// The vertices with the root buses that they are under, save those known already.
pub(super) fn vertices_from(
    specs: &[VertexSpec],
    known: &BTreeSet<Place>,
) -> Result<Vec<Vertex>, SpecError> {
    let mut vertices = specs.iter().map(vertex_from).collect::<Result<Vec<_>, _>>()?;
    let parents = vertices.iter().filter_map(|vertex| vertex.parent);
    let roots: BTreeSet<Place> =
        parents.filter(|place| matches!(place, Place::Root(_)) && !known.contains(place)).collect();
    vertices.extend(roots.into_iter().map(|root| Vertex::new(root, Role::HostBridge)));
    Ok(vertices)
}

/// Nothing for a root bus, which says nothing but that it is there.
pub(super) fn vertex_spec(vertex: &Vertex) -> Option<VertexSpec> {
    Some(VertexSpec {
        at: vertex.place.to_string(),
        under: vertex.parent.map(|parent| parent.to_string()),
        role: role_spec(vertex.role)?,
        class: vertex.class.filter(|_| usual_class(vertex.role) != vertex.class).map(class_text),
        id: vertex.id.map(|(vendor, device)| format!("{vendor:04x}:{device:04x}")),
        numa: vertex.numa.map(|node| node.0),
        rdma: vertex.rdma,
        link_layer: vertex.link_layer.map(|layer| layer_text(layer).to_owned()),
        max_link: vertex.max_link.map(link_text),
        data_path: vertex.data_path.map(|place| place.to_string()),
        evidence: evidence_text(&vertex.evidence),
        numa_evidence: evidence_text(&vertex.numa_evidence),
    })
}

fn vertex_from(spec: &VertexSpec) -> Result<Vertex, SpecError> {
    let at = |field, text: Option<&String>| optional(text, |text| place(field, text));
    let class = optional(spec.class.as_ref(), |text| hex("shape.vertices.class", text, 6))?;
    Ok(Vertex {
        place: place("shape.vertices.at", &spec.at)?,
        parent: at("shape.vertices.under", spec.under.as_ref())?,
        role: spec.role.into(),
        class: class.or_else(|| usual_class(spec.role.into())),
        id: optional(spec.id.as_ref(), |text| id("shape.vertices.id", text))?,
        numa: spec.numa.map(NumaNode),
        link_layer: optional(spec.link_layer.as_ref(), |text| {
            layer("shape.vertices.linkLayer", text)
        })?,
        rdma: spec.rdma,
        max_link: optional(spec.max_link.as_ref(), |text| link("shape.vertices.maxLink", text))?,
        data_path: at("shape.vertices.dataPath", spec.data_path.as_ref())?,
        evidence: evidence("shape.vertices.evidence", spec.evidence.as_ref())?,
        numa_evidence: evidence("shape.vertices.numaEvidence", spec.numa_evidence.as_ref())?,
    })
}

/// What a vertex has where nothing is written: half of all are bridges.
fn usual_class(role: Role) -> Option<u32> {
    (role == Role::Bridge).then_some(PCI_BRIDGE)
}

fn class_text(class: u32) -> String {
    format!("{class:06x}")
}

fn numa_spec(vertex: &NumaVertex) -> NumaNodeSpec {
    NumaNodeSpec {
        node: vertex.node.0,
        cpus: vertex.cpus.to_string(),
        distances: vertex.distances.clone(),
        socket: vertex.socket,
        evidence: evidence_text(&vertex.evidence),
    }
}

fn numa_from(spec: &NumaNodeSpec) -> Result<NumaVertex, SpecError> {
    Ok(NumaVertex {
        node: NumaNode(spec.node),
        cpus: value("shape.numaNodes.cpus", &spec.cpus)?,
        distances: spec.distances.clone(),
        socket: spec.socket,
        evidence: evidence("shape.numaNodes.evidence", spec.evidence.as_ref())?,
    })
}

fn socket_spec(vertex: &SocketVertex) -> SocketSpec {
    SocketSpec {
        socket: vertex.socket,
        cpus: vertex.cpus.to_string(),
        evidence: evidence_text(&vertex.evidence),
    }
}

fn socket_from(spec: &SocketSpec) -> Result<SocketVertex, SpecError> {
    Ok(SocketVertex {
        socket: spec.socket,
        cpus: value("shape.sockets.cpus", &spec.cpus)?,
        evidence: evidence("shape.sockets.evidence", spec.evidence.as_ref())?,
    })
}

/// Eight GPUs on switches have 28 links of one sort: one entry, not 28.
fn gpu_link_specs(links: &[GpuLink]) -> Vec<GpuLinkSpec> {
    let mut sorts: BTreeMap<(&Evidence, Fabric), Vec<&GpuLink>> = BTreeMap::new();
    for link in links {
        sorts.entry((&link.evidence, link.fabric)).or_default().push(link);
    }
    let mut specs = Vec::new();
    for links in sorts.into_values() {
        let gpus: BTreeSet<PciAddress> =
            links.iter().flat_map(|link| [link.gpus.0, link.gpus.1]).collect();
        // Each two once: as many links as there are pairs are all of them.
        if links.len() == gpus.len() * (gpus.len() - 1) / 2 {
            specs.extend(links.first().map(|link| gpu_link_spec(link, gpus)));
        } else {
            let pairs = links.into_iter();
            specs.extend(pairs.map(|link| gpu_link_spec(link, [link.gpus.0, link.gpus.1].into())));
        }
    }
    specs
}

fn gpu_link_spec(link: &GpuLink, gpus: BTreeSet<PciAddress>) -> GpuLinkSpec {
    let (kind, links, hops) = match link.fabric {
        Fabric::NvLink { links } => (GpuLinkKind::Nvlink, Some(links), None),
        Fabric::Xgmi { hops } => (GpuLinkKind::Xgmi, None, hops),
    };
    let gpus = gpus.into_iter().map(|gpu| gpu.to_string()).collect();
    GpuLinkSpec { gpus, kind, links, hops, evidence: evidence_text(&link.evidence) }
}

fn gpu_links_from(spec: &GpuLinkSpec) -> Result<Vec<GpuLink>, SpecError> {
    let missing = || unexpected("shape.gpuLinks.links", "");
    let fabric = match spec.kind {
        GpuLinkKind::Nvlink => Fabric::NvLink { links: spec.links.ok_or_else(missing)? },
        GpuLinkKind::Xgmi => Fabric::Xgmi { hops: spec.hops },
    };
    let evidence = evidence("shape.gpuLinks.evidence", spec.evidence.as_ref())?;
    let gpus = spec.gpus.iter().map(|gpu| value("shape.gpuLinks.gpus", gpu));
    let gpus: Vec<PciAddress> = gpus.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect();
    if gpus.len() > MOST_GPUS {
        return Err(unexpected("shape.gpuLinks.gpus", &format!("{} GPUs", gpus.len())));
    }
    let pairs = gpus.iter().enumerate();
    let pairs = pairs.flat_map(|(index, a)| gpus.iter().skip(index + 1).map(|b| (*a, *b)));
    let link = |gpus| GpuLink { gpus, fabric, evidence: evidence.clone() };
    Ok(pairs.map(link).collect())
}

fn role_spec(role: Role) -> Option<VertexRole> {
    match role {
        Role::HostBridge => None,
        Role::Bridge => Some(VertexRole::Bridge),
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
            VertexRole::Bridge => Self::Bridge,
            VertexRole::Switch => Self::Switch,
            VertexRole::Gpu => Self::Gpu,
            VertexRole::Nic => Self::Nic,
            VertexRole::DataPath => Self::DataPath,
            VertexRole::Nvme => Self::Nvme,
        }
    }
}
