//! Between the model and its Kubernetes form, both ways, and the hash of a shape.

use std::collections::BTreeMap;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::{
    DeviceIdentity, NodeTopologySpec, NumaNodeSpec, NvLinkSpec, PeerToPeer, ShapeSpec,
    TopologySummary, VertexRole, VertexSpec,
};
use crate::build::Built;
use crate::identity::Identity;
use crate::shape::{NumaVertex, NvLink, Place, Role, Shape, Vertex};
use crate::{Evidence, Gdr, LinkLayer, NumaNode, PciAddress, PcieLink, ShapeHash, Topology};

/// A `NodeTopology` that is no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A field holds no value of its type.
    #[error("unexpected value `{value}` in `{field}`")]
    Value {
        /// Path of the field below `spec`.
        field: &'static str,
        /// What it holds.
        value: String,
    },
    /// The vertices are no forest.
    #[error("the vertices are no forest: {0}")]
    Graph(String),
}

impl Topology {
    /// The graph as a Kubernetes object's `spec`.
    pub fn to_spec(&self) -> NodeTopologySpec {
        NodeTopologySpec {
            summary: TopologySummary {
                gpus: count(self.gpus().len()),
                nics: count(self.nics().len()),
                numa_nodes: count(self.shape.numa.len()),
                anomalies: count(self.anomalies.len()),
            },
            shape: ShapeSpec { hash: self.hash.to_string(), ..shape_spec(&self.shape) },
            identities: self
                .identities
                .iter()
                .filter(|(_, identity)| **identity != Identity::default())
                .map(|(address, identity)| identity_spec(*address, identity))
                .collect(),
            peer_to_peer: self.gdr.iter().map(peer_to_peer).collect(),
            anomalies: self.anomalies.clone(),
        }
    }

    /// The graph that a node's driver has published. Its shape keeps the name that
    /// the driver gave it, since the NICs' attributes carry the same.
    pub fn from_spec(spec: &NodeTopologySpec) -> Result<Self, SpecError> {
        let hash = value("shape.hash", &spec.shape.hash)?;
        let built = Built {
            shape: shape(&spec.shape)?,
            identities: identities(&spec.identities)?,
            anomalies: spec.anomalies.clone(),
        };
        let (mut topology, errors) = Self::assemble(built, Some(hash));
        topology.gdr = spec.peer_to_peer.iter().map(verdict).collect::<Result<_, _>>()?;
        match errors.first() {
            None => Ok(topology),
            Some(error) => Err(SpecError::Graph(error.to_string())),
        }
    }
}

impl Shape {
    /// The first eight bytes of the SHA-256 of the shape's JSON without its hash.
    pub(crate) fn hash(&self) -> ShapeHash {
        let json = serde_json::to_vec(&shape_spec(self))
            .expect("strings, numbers and lists have a JSON form");
        let digest = Sha256::digest(json);
        ShapeHash(digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte)))
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The shape with no hash.
fn shape_spec(shape: &Shape) -> ShapeSpec {
    ShapeSpec {
        hash: String::new(),
        vertices: shape.vertices.iter().map(vertex_spec).collect(),
        numa_nodes: shape.numa.iter().map(numa_spec).collect(),
        nvlinks: shape.nvlinks.iter().map(nvlink_spec).collect(),
    }
}

fn vertex_spec(vertex: &Vertex) -> VertexSpec {
    let hidden = |evidence: &Evidence| match evidence {
        Evidence::Sysfs => None,
        evidence => Some(evidence.to_string()),
    };
    VertexSpec {
        at: vertex.place.to_string(),
        under: vertex.parent.map(|parent| parent.to_string()),
        role: vertex.role.into(),
        class: vertex.class.map(|class| format!("{class:06x}")),
        id: vertex.id.map(|(vendor, device)| format!("{vendor:04x}:{device:04x}")),
        numa: vertex.numa.map(|node| node.0),
        rdma: vertex.rdma,
        link_layer: vertex.link_layer.map(|layer| layer_word(layer).to_owned()),
        max_link: vertex.max_link.map(|link| format!("{}x{}", link.megatransfers, link.width)),
        data_path: vertex.data_path.map(|place| place.to_string()),
        evidence: hidden(&vertex.evidence),
        numa_evidence: hidden(&vertex.numa_evidence),
    }
}

fn numa_spec(vertex: &NumaVertex) -> NumaNodeSpec {
    NumaNodeSpec {
        node: vertex.node.0,
        cpus: vertex.cpus.to_string(),
        distances: vertex.distances.clone(),
        socket: vertex.socket,
    }
}

fn nvlink_spec(nvlink: &NvLink) -> NvLinkSpec {
    NvLinkSpec {
        a: nvlink.gpus.0.to_string(),
        b: nvlink.gpus.1.to_string(),
        links: nvlink.links,
        evidence: nvlink.evidence.to_string(),
    }
}

fn identity_spec(address: PciAddress, identity: &Identity) -> DeviceIdentity {
    let Identity { uuid, model, rdma_device, netdevs, node_guid, sys_image_guid } =
        identity.clone();
    let at = address.to_string();
    DeviceIdentity { at, uuid, model, rdma_device, netdevs, node_guid, sys_image_guid }
}

fn peer_to_peer(((gpu, nic), verdict): (&(PciAddress, PciAddress), &Gdr)) -> PeerToPeer {
    let [gpu, nic] = [gpu, nic].map(ToString::to_string);
    PeerToPeer { gpu, nic, verdict: verdict.to_string() }
}

fn verdict(spec: &PeerToPeer) -> Result<((PciAddress, PciAddress), Gdr), SpecError> {
    let ends = (value("peerToPeer.gpu", &spec.gpu)?, value("peerToPeer.nic", &spec.nic)?);
    Ok((ends, value("peerToPeer.verdict", &spec.verdict)?))
}

fn shape(spec: &ShapeSpec) -> Result<Shape, SpecError> {
    Ok(Shape {
        vertices: spec.vertices.iter().map(vertex).collect::<Result<_, _>>()?,
        numa: spec.numa_nodes.iter().map(numa).collect::<Result<_, _>>()?,
        nvlinks: spec.nvlinks.iter().map(nvlink).collect::<Result<_, _>>()?,
    })
}

fn vertex(spec: &VertexSpec) -> Result<Vertex, SpecError> {
    Ok(Vertex {
        place: place("shape.vertices.at", &spec.at)?,
        parent: optional(spec.under.as_ref(), |text| place("shape.vertices.under", text))?,
        role: spec.role.into(),
        class: optional(spec.class.as_ref(), |text| hex("shape.vertices.class", text, 6))?,
        id: optional(spec.id.as_ref(), id)?,
        numa: spec.numa.map(NumaNode),
        link_layer: optional(spec.link_layer.as_ref(), layer)?,
        rdma: spec.rdma,
        max_link: optional(spec.max_link.as_ref(), link)?,
        data_path: optional(spec.data_path.as_ref(), |text| {
            place("shape.vertices.dataPath", text)
        })?,
        evidence: evidence("shape.vertices.evidence", spec.evidence.as_ref())?,
        numa_evidence: evidence("shape.vertices.numaEvidence", spec.numa_evidence.as_ref())?,
    })
}

fn numa(spec: &NumaNodeSpec) -> Result<NumaVertex, SpecError> {
    Ok(NumaVertex {
        node: NumaNode(spec.node),
        cpus: value("shape.numaNodes.cpus", &spec.cpus)?,
        distances: spec.distances.clone(),
        socket: spec.socket,
    })
}

fn nvlink(spec: &NvLinkSpec) -> Result<NvLink, SpecError> {
    Ok(NvLink {
        gpus: (value("shape.nvlinks.a", &spec.a)?, value("shape.nvlinks.b", &spec.b)?),
        links: spec.links,
        evidence: value("shape.nvlinks.evidence", &spec.evidence)?,
    })
}

fn identities(specs: &[DeviceIdentity]) -> Result<BTreeMap<PciAddress, Identity>, SpecError> {
    let identity = |spec: &DeviceIdentity| {
        let DeviceIdentity { at, uuid, model, rdma_device, netdevs, node_guid, sys_image_guid } =
            spec.clone();
        let identity = Identity { uuid, model, rdma_device, netdevs, node_guid, sys_image_guid };
        Ok((value("identities.at", &at)?, identity))
    };
    specs.iter().map(identity).collect()
}

fn optional<T>(
    text: Option<&String>,
    parse: impl FnOnce(&str) -> Result<T, SpecError>,
) -> Result<Option<T>, SpecError> {
    text.map(|text| parse(text)).transpose()
}

fn value<T: FromStr>(field: &'static str, text: &str) -> Result<T, SpecError> {
    text.parse().map_err(|_| unexpected(field, text))
}

fn unexpected(field: &'static str, text: &str) -> SpecError {
    SpecError::Value { field, value: text.to_owned() }
}

fn place(field: &'static str, text: &str) -> Result<Place, SpecError> {
    let root = text.parse().map(Place::Root);
    root.or_else(|_| value(field, text).map(Place::Function))
}

fn evidence(field: &'static str, text: Option<&String>) -> Result<Evidence, SpecError> {
    text.map_or(Ok(Evidence::Sysfs), |text| value(field, text))
}

fn hex(field: &'static str, text: &str, digits: usize) -> Result<u32, SpecError> {
    u32::from_str_radix(text, 16)
        .ok()
        .filter(|value| format!("{value:0digits$x}") == text)
        .ok_or_else(|| unexpected(field, text))
}

fn id(text: &str) -> Result<(u16, u16), SpecError> {
    const FIELD: &str = "shape.vertices.id";
    let half = |text| u16::try_from(hex(FIELD, text, 4)?).map_err(|_| unexpected(FIELD, text));
    let (vendor, device) = text.split_once(':').ok_or_else(|| unexpected(FIELD, text))?;
    Ok((half(vendor)?, half(device)?))
}

fn link(text: &str) -> Result<PcieLink, SpecError> {
    const FIELD: &str = "shape.vertices.maxLink";
    let (speed, width) = text.split_once('x').ok_or_else(|| unexpected(FIELD, text))?;
    Ok(PcieLink { megatransfers: value(FIELD, speed)?, width: value(FIELD, width)? })
}

fn layer_word(layer: LinkLayer) -> &'static str {
    match layer {
        LinkLayer::InfiniBand => "infiniband",
        LinkLayer::Ethernet => "ethernet",
    }
}

fn layer(text: &str) -> Result<LinkLayer, SpecError> {
    let all = [LinkLayer::InfiniBand, LinkLayer::Ethernet];
    let layer = all.into_iter().find(|layer| layer_word(*layer) == text);
    layer.ok_or_else(|| unexpected("shape.vertices.linkLayer", text))
}

impl From<Role> for VertexRole {
    fn from(role: Role) -> Self {
        match role {
            Role::HostBridge => Self::Root,
            Role::Bridge => Self::Bridge,
            Role::Switch => Self::Switch,
            Role::Gpu => Self::Gpu,
            Role::Nic => Self::Nic,
            Role::DataPath => Self::DataPath,
        }
    }
}

impl From<VertexRole> for Role {
    fn from(role: VertexRole) -> Self {
        match role {
            VertexRole::Root => Self::HostBridge,
            VertexRole::Bridge => Self::Bridge,
            VertexRole::Switch => Self::Switch,
            VertexRole::Gpu => Self::Gpu,
            VertexRole::Nic => Self::Nic,
            VertexRole::DataPath => Self::DataPath,
        }
    }
}
