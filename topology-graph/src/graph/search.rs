//! Finds the best path between two devices: the shortest by [`Distance`], which implements the
//! rules of `nvidia-smi topo -m`.
//!
//! Data go up from one device and down to the other. On the PCI tree they turn at the lowest common
//! ancestor. If there is none, or if it is a host bridge and the devices are on different known NUMA
//! nodes, they cross NUMA nodes.

use petgraph::graph::{EdgeIndex, NodeIndex};

use crate::{PathKind, PciAddress};

use super::edge::{Distance, Edge};
use super::vertex::{Place, Role, Vertex};
use super::{Graph, Rise, Step};

/// The place where a path turns from up to down.
#[derive(Clone, Copy)]
enum Turn {
    /// A common ancestor.
    Ancestor(NodeIndex),
    /// NUMA nodes: the last vertex before them on either side.
    Numa { from: NodeIndex, to: NodeIndex },
}

/// A path between two vertices.
#[derive(Clone, Copy)]
enum Bend {
    /// By a link between two GPUs.
    Fabric(EdgeIndex),
    /// Over the PCI tree and NUMA nodes.
    Tree { to: NodeIndex, turn: Turn },
    /// To the function that moves the data of the NIC at the end.
    DataPath { mover: Rise, turn: Turn },
}

impl Graph {
    /// The distance between two endpoints. `None` if one does not exist or no path is known.
    pub(crate) fn distance(&self, a: PciAddress, b: PciAddress) -> Option<Distance> {
        let (from, to, _) = self.ends(a, b)?;
        self.best(from, to).map(|(distance, _)| distance)
    }

    /// The best path between two places: the vertices after the first, with the edges between them.
    /// `None` if no path is known.
    #[cfg(test)]
    pub(crate) fn way(&self, from: Place, to: Place) -> Option<(PathKind, Vec<Step<'_>>)> {
        self.steps(*self.places.get(&from)?, *self.places.get(&to)?)
    }

    /// The best path between two endpoints: its first endpoint, and the steps to the other. It is
    /// the same in both directions.
    pub(crate) fn between(
        &self,
        a: PciAddress,
        b: PciAddress,
    ) -> Option<(PathKind, &Vertex, Vec<Step<'_>>)> {
        let (from, to, is_back) = self.ends(a, b)?;
        let (kind, mut steps) = self.steps(from, to)?;
        let (mut first, last) = (&self.graph[from], &self.graph[to]);
        if is_back {
            steps = Step::back(first, &steps);
            first = last;
        }
        Some((kind, first, steps))
    }

    /// The two endpoints in the order in which a path is searched, and whether that is not the order
    /// given. A symmetric search starts from a GPU if one of the two is a GPU.
    fn ends(&self, a: PciAddress, b: PciAddress) -> Option<(NodeIndex, NodeIndex, bool)> {
        let (a, b) = (self.endpoint(a)?, self.endpoint(b)?);
        let is_back = self.search_order(a) > self.search_order(b);
        Some(if is_back { (b, a, true) } else { (a, b, false) })
    }

    fn endpoint(&self, address: PciAddress) -> Option<NodeIndex> {
        let index = *self.places.get(&Place::Function(address))?;
        self.graph[index].role.is_endpoint().then_some(index)
    }

    /// GPUs first, then by place.
    fn search_order(&self, endpoint: NodeIndex) -> (bool, Place) {
        let vertex = &self.graph[endpoint];
        (vertex.role != Role::Gpu, vertex.place)
    }

    fn best(&self, from: NodeIndex, to: NodeIndex) -> Option<(Distance, Bend)> {
        let bends = [self.by_fabric(from, to), self.by_tree(from, to), self.by_mover(from, to)];
        let known = bends.into_iter().flatten();
        known.map(|bend| (self.length(from, bend), bend)).min_by_key(|(distance, _)| *distance)
    }

    fn by_fabric(&self, from: NodeIndex, to: NodeIndex) -> Option<Bend> {
        let are_gpus = [from, to].into_iter().all(|end| self.graph[end].role == Role::Gpu);
        let edge = self.graph.find_edge_undirected(from, to).filter(|_| are_gpus)?.0;
        matches!(self.graph[edge], Edge::Fabric { .. }).then_some(Bend::Fabric(edge))
    }

    fn by_tree(&self, from: NodeIndex, to: NodeIndex) -> Option<Bend> {
        Some(Bend::Tree { to, turn: self.turn(from, to)? })
    }

    /// Between a GPU and a NIC, data may also take the NIC's data path.
    fn by_mover(&self, from: NodeIndex, to: NodeIndex) -> Option<Bend> {
        let mover = self.up(to).data_path.filter(|_| self.graph[from].role == Role::Gpu)?;
        Some(Bend::DataPath { mover, turn: self.turn(from, mover.to)? })
    }

    fn turn(&self, from: NodeIndex, to: NodeIndex) -> Option<Turn> {
        let ancestor = self.common_ancestor(from, to);
        let sides = self.last_before_numa(from).zip(self.last_before_numa(to));
        let across = sides.filter(|(from, to)| {
            let is_on_bus = ancestor.is_none_or(|top| self.graph[top].role == Role::HostBridge);
            is_on_bus && (ancestor.is_none() || self.numa_above(*from) != self.numa_above(*to))
        });
        match across {
            Some((from, to)) => Some(Turn::Numa { from, to }),
            None => ancestor.map(Turn::Ancestor),
        }
    }

    /// The lowest vertex above both, which may be one of them.
    fn common_ancestor(&self, a: NodeIndex, b: NodeIndex) -> Option<NodeIndex> {
        let (mut a, mut b) = (a, b);
        while a != b {
            if self.up(a).depth >= self.up(b).depth {
                a = self.above(a)?;
            } else {
                b = self.above(b)?;
            }
        }
        Some(a)
    }

    /// The vertex at or above this one from which an edge leads to a NUMA node.
    fn last_before_numa(&self, from: NodeIndex) -> Option<NodeIndex> {
        self.ancestors(Some(from)).find(|index| self.up(*index).numa.is_some())
    }

    fn numa_above(&self, index: NodeIndex) -> Option<NodeIndex> {
        self.up(index).numa.map(|numa| numa.to)
    }

    fn length(&self, from: NodeIndex, bend: Bend) -> Distance {
        match bend {
            Bend::Fabric(edge) => self.edge_distance(edge),
            Bend::Tree { to, turn } => self.length_of_turn(from, to, turn),
            Bend::DataPath { mover, turn } => {
                self.length_of_turn(from, mover.to, turn) + self.edge_distance(mover.edge)
            }
        }
    }

    fn length_of_turn(&self, from: NodeIndex, to: NodeIndex, turn: Turn) -> Distance {
        match turn {
            Turn::Ancestor(top) => {
                self.length_of(self.climb(from, top)) + self.length_of(self.climb(to, top))
            }
            Turn::Numa { from: left, to: right } => {
                self.length_of(self.climb(from, left))
                    + self.length_of(self.climb(to, right))
                    + self.length_of(self.over_numa(left, right))
            }
        }
    }

    fn length_of(&self, rises: impl IntoIterator<Item = Rise>) -> Distance {
        let distances = rises.into_iter().map(|rise| self.edge_distance(rise.edge));
        distances.fold(Distance::default(), |sum, distance| sum + distance)
    }

    /// The edges from a vertex up to one of its ancestors.
    fn climb(&self, from: NodeIndex, top: NodeIndex) -> impl Iterator<Item = Rise> {
        let below = self.ancestors(Some(from)).take_while(move |index| *index != top);
        below.filter_map(|index| self.up(index).parent)
    }

    /// The edges from one vertex below a NUMA node to another, each with the vertex that it leads to.
    fn over_numa(&self, left: NodeIndex, right: NodeIndex) -> Vec<Rise> {
        let (Some(up), Some(down)) = (self.up(left).numa, self.up(right).numa) else {
            return Vec::new();
        };
        let across = self.graph.find_edge_undirected(up.to, down.to);
        let across = across.filter(|_| up.to != down.to).map(|(edge, _)| edge);
        let across = across.map(|edge| Rise { edge, to: down.to });
        let down = Rise { edge: down.edge, to: right };
        [Some(up), across, Some(down)].into_iter().flatten().collect()
    }

    fn steps(&self, from: NodeIndex, to: NodeIndex) -> Option<(PathKind, Vec<Step<'_>>)> {
        let (distance, bend) = self.best(from, to)?;
        let rises = match bend {
            Bend::Fabric(edge) => vec![Rise { edge, to }],
            Bend::Tree { to, turn } => self.rises(from, to, turn),
            Bend::DataPath { mover, turn } => {
                let mut rises = self.rises(from, mover.to, turn);
                rises.push(Rise { edge: mover.edge, to });
                rises
            }
        };
        let steps = rises.into_iter().map(|rise| self.step(rise));
        Some((distance.kind(), steps.collect()))
    }

    /// The edges of a turn, each with the vertex that it leads to.
    fn rises(&self, from: NodeIndex, to: NodeIndex, turn: Turn) -> Vec<Rise> {
        match turn {
            Turn::Ancestor(top) => {
                let mut rises: Vec<Rise> = self.climb(from, top).collect();
                rises.extend(self.descend(top, to));
                rises
            }
            Turn::Numa { from: left, to: right } => {
                let mut rises: Vec<Rise> = self.climb(from, left).collect();
                rises.extend(self.over_numa(left, right));
                rises.extend(self.descend(right, to));
                rises
            }
        }
    }

    /// The edges from an ancestor down to a vertex, each with its lower end.
    fn descend(&self, top: NodeIndex, to: NodeIndex) -> Vec<Rise> {
        let below = self.ancestors(Some(to)).take_while(|index| *index != top);
        let mut rises: Vec<Rise> = below
            .filter_map(|lower| Some(Rise { edge: self.up(lower).parent?.edge, to: lower }))
            .collect();
        rises.reverse();
        rises
    }

    fn step(&self, rise: Rise) -> Step<'_> {
        Step { edge: &self.graph[rise.edge], to: &self.graph[rise.to] }
    }

    fn edge_distance(&self, edge: EdgeIndex) -> Distance {
        let ends = self.graph.edge_endpoints(edge);
        let above = ends.map_or(Role::Switch, |(_, above)| self.graph[above].role);
        let distance = self.graph[edge].distance(above);
        match (&self.graph[edge], ends) {
            (Edge::Slit { .. }, Some((a, b))) if self.are_on_two_sockets(a, b) => {
                distance.between_sockets()
            }
            _ => distance,
        }
    }

    /// Returns true unless both NUMA nodes are known to be on one socket.
    fn are_on_two_sockets(&self, a: NodeIndex, b: NodeIndex) -> bool {
        self.socket_above(a).is_none_or(|known| self.socket_above(b) != Some(known))
    }

    fn socket_above(&self, numa: NodeIndex) -> Option<NodeIndex> {
        self.graph.neighbors(numa).find(|above| self.graph[*above].role == Role::Socket)
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
