//! The graph of one machine. CPU sockets, NUMA nodes and the PCI tree are vertices; their
//! connections are weighted edges. All distances are computed on it.
//!
//! Edges point upwards (a device to its port, a host bridge to its NUMA node) and are followed in
//! both directions.

mod edge;
mod join;
mod parts;
mod search;
mod vertex;

use std::collections::BTreeMap;
use std::iter::successors;

use petgraph::graph::{EdgeIndex, NodeIndex, UnGraph};
use petgraph::visit::EdgeRef;

use crate::NumaNode;

pub(crate) use edge::{Edge, Fabric, Link};
pub(crate) use parts::{Branch, GpuLink, Mesh, NumaPart, Parts, SocketPart};
pub(crate) use vertex::Vertex;
pub use vertex::{Place, Role};

/// Vertices by place, and edges.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    graph: UnGraph<Vertex, Edge>,
    places: BTreeMap<Place, NodeIndex>,
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

    /// All edges with their ends, the lower end first, by place.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&Vertex, &Vertex, &Edge)> {
        let mut edges: Vec<_> = self.graph.edge_references().collect();
        let place = |index: NodeIndex| self.graph[index].place;
        edges.sort_by_key(|edge| (place(edge.source()), place(edge.target())));
        let vertex = |index: NodeIndex| &self.graph[index];
        edges.into_iter().map(move |e| (vertex(e.source()), vertex(e.target()), e.weight()))
    }

    /// The vertex at this place.
    pub(crate) fn vertex(&self, place: Place) -> Option<&Vertex> {
        Some(&self.graph[*self.places.get(&place)?])
    }

    /// The parent of a vertex on the PCI tree.
    pub(crate) fn parent(&self, place: Place) -> Option<&Vertex> {
        self.above(*self.places.get(&place)?).map(|(_, parent)| &self.graph[parent])
    }

    /// The children of a vertex on the PCI tree, by place.
    pub(crate) fn children(&self, place: Place) -> Vec<&Vertex> {
        let Some(&index) = self.places.get(&place) else { return Vec::new() };
        let neighbors = self.graph.neighbors(index);
        let below = neighbors.filter(|child| self.above(*child).is_some_and(|up| up.1 == index));
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
        self.up(self.places.get(&place).copied()).map(|index| &self.graph[index]).collect()
    }

    /// The chain that a device's data take: that of its data path, if it has one.
    pub(crate) fn data_chain(&self, place: Place) -> Vec<&Vertex> {
        let data_path = self.data_path(place).map(|vertex| vertex.place);
        self.chain(data_path.unwrap_or(place))
    }

    /// The function that moves a NIC's data.
    pub(crate) fn data_path(&self, nic: Place) -> Option<&Vertex> {
        let index = *self.places.get(&nic)?;
        let mut edges = self.graph.edges(index);
        let edge = edges.find(|edge| {
            *edge.weight() == Edge::DataPath && self.lower_end(edge.id()) == Some(index)
        })?;
        Some(&self.graph[edge.target()])
    }

    /// The switch that a vertex is attached to, represented by its upstream port, or by itself if
    /// it is a whole switch. Two devices of one switch are PIX apart. `None` below a root port or a
    /// root bus.
    pub(crate) fn switch_above(&self, place: Place) -> Option<&Vertex> {
        let port = self.parent(place)?;
        match port.role {
            Role::Switch => Some(port),
            Role::SwitchPort if self.link_above(port.place).is_some() => Some(port),
            Role::SwitchPort => self.parent(port.place),
            _ => None,
        }
    }

    /// The PCIe link between a vertex and its parent.
    pub(crate) fn link_above(&self, place: Place) -> Option<Link> {
        let (edge, _) = self.above(*self.places.get(&place)?)?;
        match self.graph[edge] {
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
        self.graph.neighbors(index).find_map(|other| match self.graph[other].place {
            Place::Socket(socket) => Some(socket),
            _ => None,
        })
    }

    /// A node's row of the SLIT, over all nodes by number, if known.
    pub(crate) fn slit(&self, node: NumaNode) -> Vec<u32> {
        let Some(&from) = self.places.get(&Place::Numa(node)) else { return Vec::new() };
        let is_node = |vertex: &Vertex| vertex.role == Role::NumaNode && vertex.in_shape;
        let nodes = self.places.iter().filter(|(_, index)| is_node(&self.graph[**index]));
        let distance = |to: NodeIndex| {
            let edge = self.graph.find_edge(from, to)?;
            match self.graph[edge] {
                Edge::Slit { there, back } => {
                    if self.lower_end(edge) == Some(from) {
                        there
                    } else {
                        back
                    }
                }
                _ => None,
            }
        };
        nodes.map_while(|(_, to)| distance(*to)).collect()
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
    fn up(&self, from: Option<NodeIndex>) -> impl Iterator<Item = NodeIndex> {
        successors(from, |index| self.above(*index).map(|(_, parent)| parent))
    }

    /// The edge to the parent on the PCI tree, and the parent.
    fn above(&self, index: NodeIndex) -> Option<(EdgeIndex, NodeIndex)> {
        let mut edges = self.graph.edges(index).filter(|edge| {
            matches!(edge.weight(), Edge::Pcie(_) | Edge::Attachment)
                && self.graph[edge.target()].role.is_pci()
                && self.lower_end(edge.id()) == Some(index)
        });
        edges.next().map(|edge| (edge.id(), edge.target()))
    }

    fn lower_end(&self, edge: EdgeIndex) -> Option<NodeIndex> {
        self.graph.edge_endpoints(edge).map(|(lower, _)| lower)
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
