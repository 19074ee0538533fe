//! The tree of a shape as a graph, and the distance between two of its devices.
//!
//! The rule is `nvidia-smi topo -m`'s, from sysfs: the nearest common ancestor is
//! a switch (PIX), a bridge above several switches (PXB) or a host bridge (PHB);
//! without one the NUMA nodes decide. Unknown nodes are never equal.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::shape::{Place, Role, Vertex};
use crate::{NumaNode, PathKind};

/// A switch is two vertices in sysfs: its upstream and one downstream port.
const HOPS_WITHIN_SWITCH_PORTS: usize = 2;
/// And one where an overlay tells it whole.
const HOPS_WITHIN_WHOLE_SWITCH: usize = 1;

/// The vertices; an edge leads from each to its parent.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    tree: DiGraph<Vertex, ()>,
    places: BTreeMap<Place, NodeIndex>,
}

/// A shape that is no forest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphError {
    #[error("vertex `{0}` is there twice")]
    Twice(Place),
    #[error("vertex `{vertex}` is under `{parent}`, which is not there")]
    NoParent { vertex: Place, parent: Place },
    #[error("vertex `{0}` is above itself")]
    Loop(Place),
}

impl Graph {
    /// The forest of these vertices, and what in them is none: a vertex or edge that
    /// would spoil it is left out.
    pub(crate) fn new(vertices: &[Vertex]) -> (Self, Vec<GraphError>) {
        let mut graph = Self { tree: DiGraph::new(), places: BTreeMap::new() };
        let mut errors = Vec::new();
        for vertex in vertices {
            match graph.places.entry(vertex.place) {
                Entry::Vacant(entry) => drop(entry.insert(graph.tree.add_node(vertex.clone()))),
                Entry::Occupied(_) => errors.push(GraphError::Twice(vertex.place)),
            }
        }
        errors.extend(vertices.iter().filter_map(|vertex| graph.hang(vertex).err()));
        (graph, errors)
    }

    /// The edge from a vertex to its parent.
    fn hang(&mut self, vertex: &Vertex) -> Result<(), GraphError> {
        let Some(parent) = vertex.parent else { return Ok(()) };
        let missing = GraphError::NoParent { vertex: vertex.place, parent };
        let above = *self.places.get(&parent).ok_or(missing)?;
        if self.chain(parent).iter().any(|ancestor| ancestor.place == vertex.place) {
            return Err(GraphError::Loop(vertex.place));
        }
        if let Some(&index) = self.places.get(&vertex.place) {
            self.tree.update_edge(index, above, ());
        }
        Ok(())
    }

    /// The chain by which a device's data go: its data path's, where it has one.
    pub(crate) fn data_chain(&self, place: Place) -> Vec<&Vertex> {
        let chain = self.chain(place);
        let data_path = chain.first().and_then(|vertex| vertex.data_path);
        data_path.map_or(chain, |data_path| self.chain(data_path))
    }

    /// Between a GPU and a NIC data may go two ways; the nearer one counts. These are
    /// its two chains.
    pub(crate) fn nearest_chains(&self, a: Place, b: Place) -> [Vec<&Vertex>; 2] {
        let own = [self.chain(a), self.chain(b)];
        let roles = [&own[0], &own[1]].map(|chain| chain.first().map(|vertex| vertex.role));
        if !matches!(roles, [Some(Role::Gpu), Some(Role::Nic)] | [Some(Role::Nic), Some(Role::Gpu)])
        {
            return own;
        }
        let direct = [self.data_chain(a), self.data_chain(b)];
        let nearer = pcie_path(&direct[0], &direct[1]) < pcie_path(&own[0], &own[1]);
        if nearer { direct } else { own }
    }

    /// A vertex and all above it, nearest first. Empty for a place that is not there.
    pub(crate) fn chain(&self, place: Place) -> Vec<&Vertex> {
        let mut next = self.places.get(&place).copied();
        let mut chain = Vec::new();
        while let Some(index) = next {
            chain.push(&self.tree[index]);
            next = self.tree.neighbors_directed(index, Direction::Outgoing).next();
        }
        chain
    }
}

/// The path between two different devices over PCIe, given their chains.
pub(crate) fn pcie_path(a: &[&Vertex], b: &[&Vertex]) -> PathKind {
    let common = common_ancestor(a, b);
    match common.map(|(vertex, hops)| (vertex.role, hops)) {
        Some((Role::HostBridge, _)) => PathKind::Phb,
        Some((role, hops)) if hops <= hops_within(role) => PathKind::Pix,
        Some(_) => PathKind::Pxb,
        None => numa_path(numa(a), numa(b)),
    }
}

/// The vertex that bounds the switch which a device hangs off: two devices with
/// the same one are PIX apart. None directly on a root bus.
pub(crate) fn switch_of<'g>(chain: &[&'g Vertex]) -> Option<&'g Vertex> {
    let [_, above @ ..] = chain else { return None };
    let nearest = above.first().filter(|vertex| vertex.role != Role::HostBridge)?;
    let second = above.get(1).filter(|vertex| vertex.role == Role::Bridge);
    Some(if nearest.role == Role::Bridge { second.unwrap_or(nearest) } else { nearest })
}

/// Where the nearest vertex above both is.
pub(crate) fn common_place(a: &[&Vertex], b: &[&Vertex]) -> Option<Place> {
    common_ancestor(a, b).map(|(vertex, _)| vertex.place)
}

/// The nearest vertex above both, and the hops to it from the farther one.
fn common_ancestor<'g>(a: &[&'g Vertex], b: &[&'g Vertex]) -> Option<(&'g Vertex, usize)> {
    let shared = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a.place == b.place).count();
    let common = a.len().checked_sub(shared)?;
    let vertex = a.get(common).copied().filter(|_| shared > 0)?;
    Some((vertex, common.max(b.len() - shared)))
}

fn hops_within(role: Role) -> usize {
    match role {
        Role::Switch => HOPS_WITHIN_WHOLE_SWITCH,
        Role::HostBridge | Role::Bridge | Role::Gpu | Role::Nic | Role::DataPath | Role::Nvme => {
            HOPS_WITHIN_SWITCH_PORTS
        }
    }
}

fn numa(chain: &[&Vertex]) -> Option<NumaNode> {
    chain.first().and_then(|vertex| vertex.numa)
}

fn numa_path(a: Option<NumaNode>, b: Option<NumaNode>) -> PathKind {
    match (a, b) {
        (Some(a), Some(b)) if a == b => PathKind::Node,
        (Some(_), Some(_)) => PathKind::Sys,
        _ => PathKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pci0000:00` or an address, per line `place parent [numa]`; `sw` makes a
    /// whole switch of a vertex, `gpu` a device.
    fn vertices(text: &str) -> Vec<Vertex> {
        let vertices = text.lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let place = place(words[0]);
            let role = match words.get(2) {
                Some(&"sw") => Role::Switch,
                Some(_) => Role::Gpu,
                None if matches!(place, Place::Root(_)) => Role::HostBridge,
                None => Role::Bridge,
            };
            let numa = words.get(2).and_then(|numa| numa.parse().ok()).map(NumaNode);
            Vertex {
                parent: (words[1] != "-").then(|| self::place(words[1])),
                numa,
                ..Vertex::new(place, role)
            }
        });
        vertices.collect()
    }

    fn place(text: &str) -> Place {
        text.parse().map_or_else(|_| Place::Function(text.parse().unwrap()), Place::Root)
    }

    fn path(graph: &Graph, a: &str, b: &str) -> PathKind {
        pcie_path(&graph.chain(place(a)), &graph.chain(place(b)))
    }

    #[test]
    fn the_nearest_common_ancestor_decides() {
        let (graph, errors) = Graph::new(&vertices(
            "pci0000:00 -\n\
             0000:00:01.0 pci0000:00\n\
             0000:01:00.0 0000:00:01.0\n\
             0000:02:00.0 0000:01:00.0\n\
             0000:02:01.0 0000:01:00.0\n\
             0000:03:00.0 0000:02:00.0 0\n\
             0000:03:00.1 0000:02:00.0 0\n\
             0000:04:00.0 0000:02:01.0 0\n\
             0000:02:02.0 0000:01:00.0\n\
             0000:05:00.0 0000:02:02.0\n\
             0000:06:00.0 0000:05:00.0\n\
             0000:07:00.0 0000:06:00.0 0\n\
             0000:00:02.0 pci0000:00 0\n\
             pci0000:80 -\n\
             0000:80:01.0 pci0000:80 0\n\
             0000:80:02.0 pci0000:80 -1\n\
             0000:80:03.0 - 1\n\
             0000:80:04.0 - -1",
        ));
        assert_eq!(errors, []);
        for (a, b, expected) in [
            ("0000:03:00.0", "0000:03:00.1", PathKind::Pix),
            ("0000:03:00.0", "0000:04:00.0", PathKind::Pix),
            ("0000:03:00.0", "0000:07:00.0", PathKind::Pxb),
            ("0000:03:00.0", "0000:00:02.0", PathKind::Phb),
            ("0000:03:00.0", "0000:80:01.0", PathKind::Node),
            ("0000:80:02.0", "0000:80:01.0", PathKind::Phb),
            ("0000:03:00.0", "0000:80:02.0", PathKind::Unknown),
            ("0000:80:02.0", "0000:80:04.0", PathKind::Unknown),
            ("0000:80:03.0", "0000:80:01.0", PathKind::Sys),
        ] {
            assert_eq!(path(&graph, a, b), expected, "{a} {b}");
            assert_eq!(path(&graph, b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn a_whole_switch_is_one_hop() {
        let (graph, errors) = Graph::new(&vertices(
            "ffff:ff:01.0 - sw\n\
             ffff:ff:02.0 ffff:ff:01.0 sw\n\
             0001:00:00.0 ffff:ff:02.0 0\n\
             0002:00:00.0 ffff:ff:02.0 0\n\
             0003:00:00.0 ffff:ff:01.0 0",
        ));
        assert_eq!(errors, []);
        assert_eq!(path(&graph, "0001:00:00.0", "0002:00:00.0"), PathKind::Pix);
        assert_eq!(path(&graph, "0001:00:00.0", "0003:00:00.0"), PathKind::Pxb);
    }

    #[test]
    fn what_is_no_forest_is_told() {
        for (text, expected) in [
            (
                "0000:01:00.0 0000:02:00.0\n0000:02:00.0 0000:01:00.0",
                "vertex `0000:02:00.0` is above itself",
            ),
            ("0000:01:00.0 0000:01:00.0", "vertex `0000:01:00.0` is above itself"),
            ("0000:01:00.0 -\n0000:01:00.0 -", "vertex `0000:01:00.0` is there twice"),
            (
                "0000:01:00.0 pci0000:00",
                "vertex `0000:01:00.0` is under `pci0000:00`, which is not there",
            ),
        ] {
            let (_, errors) = Graph::new(&vertices(text));
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
    }
}
