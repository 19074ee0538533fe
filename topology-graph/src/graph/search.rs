//! Finds the best path between two devices: the shortest by [`Distance`], which implements the
//! rules of `nvidia-smi topo -m`.
//!
//! Data go up from one device and down to the other. A path never passes below or beside a third
//! device, so the search follows upward edges only from its start device.

use petgraph::algo::{astar, dijkstra};
use petgraph::graph::{EdgeReference, NodeIndex};
use petgraph::visit::{EdgeFiltered, EdgeRef};

use crate::{PathKind, PciAddress};

use super::edge::{Distance, Edge};
use super::vertex::{Place, Role, Vertex};
use super::{Graph, Step};

/// The start of a search: a device with all its ancestors.
struct Start {
    device: NodeIndex,
    chain: Vec<NodeIndex>,
    /// Between a GPU and a NIC, data may also take the NIC's data path.
    by_data_paths: bool,
}

impl Graph {
    /// The paths from a device to others, in the order of `to`.
    pub(crate) fn kinds(&self, from: Place, to: &[Place]) -> Vec<PathKind> {
        let Some(start) = self.start(from) else { return vec![PathKind::Unknown; to.len()] };
        let allowed = EdgeFiltered::from_fn(&self.graph, |edge| self.is_allowed(&start, edge));
        let distances = dijkstra(&allowed, start.device, None, |edge| self.distance(edge));
        let distance = |place| distances.get(self.places.get(place)?).copied();
        to.iter().map(|to| distance(to).map_or(PathKind::Unknown, Distance::kind)).collect()
    }

    /// The best path between two devices: the vertices after the first, with the edges between
    /// them. `None` if no path is known.
    pub(crate) fn way(&self, from: Place, to: Place) -> Option<(PathKind, Vec<Step<'_>>)> {
        let (start, goal) = (self.start(from)?, *self.places.get(&to)?);
        let allowed = EdgeFiltered::from_fn(&self.graph, |edge| self.is_allowed(&start, edge));
        let is_goal = |vertex| vertex == goal;
        let far = |_| Distance::default();
        let (distance, vertices) =
            astar(&allowed, start.device, is_goal, |edge| self.distance(edge), far)?;
        let steps = vertices.windows(2).filter_map(|ends| self.step(&start, ends[0], ends[1]));
        Some((distance.kind(), steps.collect()))
    }

    /// The best path between two endpoints: its first endpoint, and the steps to the other. It is
    /// the same in both directions.
    pub(crate) fn between(
        &self,
        a: PciAddress,
        b: PciAddress,
    ) -> Option<(PathKind, &Vertex, Vec<Step<'_>>)> {
        let endpoint = |address| {
            let vertex = self.vertex(Place::Function(address))?;
            vertex.endpoint().map(|_| vertex)
        };
        let (first, last) = (endpoint(a)?, endpoint(b)?);
        if self.starts_before(first.place, last.place) {
            let (kind, steps) = self.way(first.place, last.place)?;
            return Some((kind, first, steps));
        }
        let (kind, steps) = self.way(last.place, first.place)?;
        Some((kind, first, Step::back(last, &steps)))
    }

    /// Returns true if a symmetric search starts from `a`. It starts from a GPU if one of the two
    /// is a GPU.
    pub(crate) fn starts_before(&self, a: Place, b: Place) -> bool {
        let key = |place| (self.vertex(place).map(|vertex| vertex.role) != Some(Role::Gpu), place);
        key(a) <= key(b)
    }

    fn start(&self, from: Place) -> Option<Start> {
        let device = *self.places.get(&from)?;
        Some(Start {
            device,
            chain: self.up(Some(device)).collect(),
            by_data_paths: self.graph[device].role == Role::Gpu,
        })
    }

    fn is_allowed(&self, start: &Start, edge: EdgeReference<'_, Edge>) -> bool {
        let is_up = self.lower_end(edge.id()) == Some(edge.source());
        match edge.weight() {
            Edge::Pcie(_) | Edge::Attachment => !is_up || start.chain.contains(&edge.source()),
            Edge::DataPath => !is_up && start.by_data_paths,
            Edge::Slit { .. } => true,
            Edge::Fabric { .. } => edge.source() == start.device,
        }
    }

    fn distance(&self, edge: EdgeReference<'_, Edge>) -> Distance {
        let above = self.graph.edge_endpoints(edge.id()).map(|(_, above)| above);
        edge.weight().distance(above.map_or(Role::Switch, |above| self.graph[above].role))
    }

    fn step(&self, start: &Start, from: NodeIndex, to: NodeIndex) -> Option<Step<'_>> {
        let edges = self.graph.edges_connecting(from, to);
        let nearest = edges.filter(|edge| self.is_allowed(start, *edge));
        let edge = nearest.min_by_key(|edge| self.distance(*edge))?;
        Some(Step { edge: edge.weight(), to: &self.graph[to] })
    }
}

impl<'g> Step<'g> {
    /// The same edges in reverse, from the last vertex to the first.
    fn back(first: &'g Vertex, steps: &[Self]) -> Vec<Self> {
        let vertices = [first].into_iter().chain(steps.iter().map(|step| step.to));
        let mut back: Vec<Self> =
            vertices.zip(steps).map(|(to, step)| Self { edge: step.edge, to }).collect();
        back.reverse();
        back
    }
}
