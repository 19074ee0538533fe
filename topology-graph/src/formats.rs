//! Output formats of the graph, for people and programs.
//!
//! Every format is a pure function of the graph: equal graphs give equal bytes. JSON can be read
//! back; so can NCCL's XML, with the facts that it holds.

mod dot;
mod gpu_links;
mod json;
mod matrix;
mod mermaid;
mod outline;
mod route;
mod svg;
mod tree;

use crate::graph::{Role, Vertex};
use crate::nccl::export::nccl_xml;
use crate::text::words;
use crate::{NumaNode, PciAddress, Topology};

pub use json::{JsonError, from_json, json};
pub use matrix::{Fold, MatrixOptions, ParseFoldError, matrix, matrix_with};
pub use route::{UnknownDevice, route};
pub use svg::{ParseThemeError, Theme, svg};

/// The output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The matrix of `nvidia-smi topo -m`.
    Matrix,
    /// A tree like that of `lspci -t`.
    Tree,
    /// The whole graph, versioned.
    Json,
    /// Graphviz.
    Dot,
    /// A flowchart for Markdown.
    Mermaid,
    /// A topology file for NCCL.
    NcclXml,
    /// An SVG picture.
    Svg,
}

impl Format {
    /// Renders the graph; the text ends with a newline.
    pub fn render(self, topology: &Topology) -> String {
        match self {
            Self::Matrix => matrix_with(topology, MatrixOptions::default()),
            Self::Tree => tree::tree(topology),
            Self::Json => json(topology),
            Self::Dot => dot::dot(topology),
            Self::Mermaid => mermaid::mermaid(topology),
            Self::NcclXml => nccl_xml(topology),
            Self::Svg => svg(topology, Theme::default()),
        }
    }
}

/// The label of a vertex: a device by number and name, any other by its place.
fn label(topology: &Topology, vertex: &Vertex) -> String {
    let device = vertex.place.address().and_then(|address| device_label(topology, address));
    match (device, vertex.role) {
        (Some(device), _) => format!("{device} {}", vertex.place),
        (None, Role::Socket | Role::NumaNode) => vertex.place.to_string(),
        (None, role) => format!("{role} {}", vertex.place),
    }
}

/// `GPU0 NVIDIA GB300`, `NIC0 mlx5_0`, `NVME0 nvme0`.
fn device_label(topology: &Topology, address: PciAddress) -> Option<String> {
    let (name, known_as) = device_name(topology, address)?;
    Some(known_as.map_or_else(|| name.clone(), |known_as| format!("{name} {known_as}")))
}

/// A device's name, and its model or the kernel's name.
fn device_name(topology: &Topology, address: PciAddress) -> Option<(String, Option<String>)> {
    let gpu = topology.gpu(address).map(|gpu| (&gpu.name, gpu.model.as_ref()));
    let (name, known_as) = gpu
        .or_else(|| topology.nic(address).map(|nic| (&nic.name, nic.kernel_name())))
        .or_else(|| topology.nvme(address).map(|disk| (&disk.name, disk.kernel_name.as_ref())))?;
    Some((name.clone(), known_as.cloned()))
}

/// The vertices grouped by NUMA node. A group holds the devices of a node and everything that is
/// only above these. The last group, without a node, holds devices whose node is unknown.
fn halves(topology: &Topology) -> Vec<(Option<NumaNode>, Vec<&Vertex>)> {
    let mut nodes: Vec<Option<NumaNode>> = endpoints(topology).map(|vertex| vertex.numa).collect();
    nodes.sort_unstable_by_key(|node| (node.is_none(), *node));
    nodes.dedup();
    nodes
        .into_iter()
        .map(|node| {
            let vertices = topology.graph.pci();
            (node, vertices.filter(|vertex| numa_of(topology, vertex) == node).collect())
        })
        .collect()
}

/// The NUMA node of a device; for a vertex above devices, that of the first device below it.
fn numa_of(topology: &Topology, vertex: &Vertex) -> Option<NumaNode> {
    if vertex.role.is_endpoint() {
        return vertex.numa;
    }
    endpoints(topology)
        .find(|device| {
            topology.graph.chain(device.place).iter().any(|above| above.place == vertex.place)
        })
        .and_then(|device| device.numa)
}

fn endpoints(topology: &Topology) -> impl Iterator<Item = &Vertex> {
    topology.graph.vertices().filter(|vertex| vertex.role.is_endpoint())
}

/// `NUMA node 0`, or that it is unknown.
fn half_label(node: Option<NumaNode>) -> String {
    node.map_or_else(|| "NUMA node unknown".to_owned(), |node| format!("NUMA node {node}"))
}

words! {
    Format, ParseFormatError("format"):
    Matrix = "matrix", Tree = "tree", Json = "json", Dot = "dot", Mermaid = "mermaid",
    NcclXml = "nccl-xml", Svg = "svg"
}
