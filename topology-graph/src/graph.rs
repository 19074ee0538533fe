//! The graph of one machine. CPU sockets, NUMA nodes and the PCI tree are vertices; their
//! connections are weighted edges. All distances are computed on it.
//!
//! Edges point upwards: a device to its port, a host bridge to its NUMA node, a NUMA node to its
//! socket. Edges between equals (two GPUs, two NUMA nodes) start at the one that comes first.

mod edge;
mod join;
mod parts;
mod search;
mod vertex;

use std::collections::BTreeMap;
use std::iter::successors;

use petgraph::Direction;
use petgraph::graph::{DiGraph, EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::{NumaNode, PciAddress};

pub(crate) use edge::{Distance, Edge, Fabric, Link};
pub(crate) use parts::{Branch, GpuLink, Mesh, NumaPart, Parts, SocketPart};
pub(crate) use vertex::Vertex;
pub use vertex::{Place, Role};

/// Vertices by place, and edges.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "petgraph's graph is one part of it")]
pub(crate) struct Graph {
    graph: DiGraph<Vertex, Edge>,
    places: BTreeMap<Place, NodeIndex>,
    /// The ways up from each vertex, by its index.
    ups: Vec<Up>,
}

/// The ways up from a vertex: edges with their upper ends.
#[derive(Clone, Copy, Debug, Default)]
struct Up {
    /// To the parent on the PCI tree.
    parent: Option<Rise>,
    /// To a NUMA node, other than through a parent.
    numa: Option<Rise>,
    /// From a NIC to the function that moves its data.
    data_path: Option<Rise>,
    /// The number of ancestors on the PCI tree.
    depth: usize,
    /// True if the edge to the parent is inside of one device.
    is_inside: bool,
}

/// An edge and its upper end.
#[derive(Clone, Copy, Debug)]
struct Rise {
    edge: EdgeIndex,
    to: NodeIndex,
}

/// Vertices of the PCI tree that do not form a forest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphError {
    #[error("duplicate vertex `{0}`")]
    Twice(Place),
    #[error("the parent `{parent}` of vertex `{vertex}` does not exist")]
    NoParent { vertex: Place, parent: Place },
    #[error("vertex `{0}` is its own ancestor")]
    Loop(Place),
}

/// A vertex and the edge that leads to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'g> {
    pub(crate) edge: &'g Edge,
    pub(crate) to: &'g Vertex,
}

impl Graph {
    /// All vertices by place: sockets, NUMA nodes, root buses, functions.
    pub(crate) fn vertices(&self) -> impl Iterator<Item = &Vertex> {
        self.places.values().map(|index| &self.graph[*index])
    }

    /// The vertices of the PCI tree by place: root buses and functions.
    pub(crate) fn pci(&self) -> impl Iterator<Item = &Vertex> {
        self.vertices().filter(|vertex| vertex.role.is_pci())
    }

    /// The GPUs, NICs or disks with this role, by address.
    pub(crate) fn endpoints_of(&self, role: Role) -> impl Iterator<Item = (PciAddress, &Vertex)> {
        let vertices = self.vertices().filter(move |vertex| vertex.role == role);
        vertices.filter_map(|vertex| Some((vertex.endpoint()?, vertex)))
    }

    /// All edges with their ends, the lower end first, by place.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&Vertex, &Vertex, &Edge)> {
        let edges = self
            .graph
            .edge_references()
            .map(|edge| (&self.graph[edge.source()], &self.graph[edge.target()], edge.weight()));
        let mut edges: Vec<_> = edges.collect();
        edges.sort_by_key(|(below, above, _)| (below.place, above.place));
        edges.into_iter()
    }

    /// The vertex at this place.
    pub(crate) fn vertex(&self, place: Place) -> Option<&Vertex> {
        Some(&self.graph[*self.places.get(&place)?])
    }

    /// The parent of a vertex on the PCI tree.
    pub(crate) fn parent(&self, place: Place) -> Option<&Vertex> {
        self.above(*self.places.get(&place)?).map(|parent| &self.graph[parent])
    }

    /// The children of a vertex on the PCI tree, by place.
    pub(crate) fn children(&self, place: Place) -> Vec<&Vertex> {
        let Some(&index) = self.places.get(&place) else { return Vec::new() };
        let below = self.graph.neighbors_directed(index, Direction::Incoming);
        let below = below.filter(|child| self.above(*child) == Some(index));
        let mut children: Vec<&Vertex> = below.map(|child| &self.graph[child]).collect();
        children.sort_by_key(|vertex| vertex.place);
        children
    }

    /// The vertices without a parent on the PCI tree, by place.
    pub(crate) fn tops(&self) -> impl Iterator<Item = &Vertex> {
        let tops = self.places.values().filter(|index| self.above(**index).is_none());
        tops.map(|index| &self.graph[*index]).filter(|vertex| vertex.role.is_pci())
    }

    /// A vertex and its ancestors on the PCI tree, nearest first. Empty if the place does not
    /// exist.
    pub(crate) fn chain(&self, place: Place) -> Vec<&Vertex> {
        self.ancestors(self.places.get(&place).copied()).map(|index| &self.graph[index]).collect()
    }

    /// The chain that a device's data take: that of its data path, if it has one.
    pub(crate) fn data_chain(&self, place: Place) -> Vec<&Vertex> {
        let data_path = self.data_path(place).map(|vertex| vertex.place);
        self.chain(data_path.unwrap_or(place))
    }

    /// The function that moves a NIC's data.
    pub(crate) fn data_path(&self, nic: Place) -> Option<&Vertex> {
        let index = *self.places.get(&nic)?;
        self.up(index).data_path.map(|mover| &self.graph[mover.to])
    }

    /// The switch that a vertex is attached to, represented by its upstream port, or by itself if
    /// it is a whole switch. Two devices of one switch are PIX apart. `None` below a root port or a
    /// root bus. Ports inside of a device are not a switch.
    pub(crate) fn switch_above(&self, place: Place) -> Option<&Vertex> {
        let port = self.parent(self.outermost(place)?)?;
        match port.role {
            Role::Switch => Some(port),
            Role::SwitchPort if self.link_above(port.place).is_some() => Some(port),
            Role::SwitchPort => self.parent(port.place),
            _ => None,
        }
    }

    /// The outermost port of the device that a vertex belongs to; the vertex itself if there are no
    /// ports inside of the device.
    pub(crate) fn outermost(&self, place: Place) -> Option<Place> {
        let mut index = *self.places.get(&place)?;
        while let Some(parent) = self.up(index).parent.filter(|_| self.up(index).is_inside) {
            index = parent.to;
        }
        Some(self.graph[index].place)
    }

    /// Returns true for the ports inside of a GPU or a NIC.
    pub(crate) fn is_inside_device(&self, port: Place) -> bool {
        let Some(&index) = self.places.get(&port) else { return false };
        let below = self.graph.neighbors_directed(index, Direction::Incoming);
        self.graph[index].role.is_port()
            && below
                .into_iter()
                .any(|child| self.above(child) == Some(index) && self.up(child).is_inside)
    }

    /// The PCIe link between a vertex and its parent.
    pub(crate) fn link_above(&self, place: Place) -> Option<Link> {
        let parent = self.up(*self.places.get(&place)?).parent?;
        match self.graph[parent.edge] {
            Edge::Pcie(link) => Some(link),
            _ => None,
        }
    }

    /// The vertex of the NUMA node.
    pub(crate) fn numa(&self, node: NumaNode) -> Option<&Vertex> {
        self.vertex(Place::Numa(node))
    }

    /// The socket that a NUMA node is on.
    pub(crate) fn socket_of(&self, node: NumaNode) -> Option<u32> {
        let index = *self.places.get(&Place::Numa(node))?;
        self.graph.neighbors(index).find_map(|above| match self.graph[above].place {
            Place::Socket(socket) => Some(socket),
            _ => None,
        })
    }

    /// A node's row of the SLIT, over all nodes by number, if known.
    pub(crate) fn slit(&self, node: NumaNode) -> Vec<u32> {
        let Some(&from) = self.places.get(&Place::Numa(node)) else { return Vec::new() };
        let nodes = self.places.values().filter(|index| {
            let vertex = &self.graph[**index];
            vertex.role == Role::NumaNode && vertex.in_shape
        });
        let distances = nodes.map_while(|to| {
            let (edge, direction) = self.graph.find_edge_undirected(from, *to)?;
            match (&self.graph[edge], direction) {
                (Edge::Slit { there, .. }, Direction::Outgoing) => *there,
                (Edge::Slit { back, .. }, Direction::Incoming) => *back,
                _ => None,
            }
        });
        distances.collect()
    }

    /// The links between GPUs other than PCIe, by their GPUs.
    pub(crate) fn gpu_links(&self) -> Vec<GpuLink> {
        let links = self.edges().filter_map(|(a, b, edge)| match edge {
            Edge::Fabric { fabric, evidence } => Some(GpuLink {
                gpus: (a.place.address()?, b.place.address()?),
                fabric: *fabric,
                evidence: evidence.clone(),
            }),
            _ => None,
        });
        links.collect()
    }

    /// The same links as meshes.
    pub(crate) fn meshes(&self) -> Vec<Mesh> {
        parts::meshes(&self.gpu_links())
    }

    /// A vertex and all its ancestors.
    fn ancestors(&self, from: Option<NodeIndex>) -> impl Iterator<Item = NodeIndex> {
        successors(from, |index| self.above(*index))
    }

    /// The parent on the PCI tree.
    fn above(&self, index: NodeIndex) -> Option<NodeIndex> {
        self.up(index).parent.map(|parent| parent.to)
    }

    fn up(&self, index: NodeIndex) -> Up {
        self.ups.get(index.index()).copied().unwrap_or_default()
    }
}

/// The last vertex below the host bridge: the device's root port, or a switch if a hypervisor shows
/// no root port. Devices that share it are PXB apart or nearer. `None` for a device on a root bus.
pub(crate) fn root_port_of<'g>(chain: &[&'g Vertex]) -> Option<&'g Vertex> {
    let [_, above @ ..] = chain else { return None };
    above.iter().rev().find(|vertex| vertex.role != Role::HostBridge).copied()
}

#[cfg(test)]
mod tests;
