//! Builds a graph from its parts: first each vertex, then its edges.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::{DiGraph, NodeIndex};

use crate::chip_to_chip::ChipToChip;
use crate::vendor;
use crate::{NumaNode, PciAddress, PcieLink};

use super::edge::{Edge, Link};
use super::parts::{Branch, GpuLink, NumaPart, Parts, SocketPart};
use super::vertex::{Place, Role, Vertex};
use super::{Graph, GraphError, Rise, Up};

impl Graph {
    /// Builds the graph. Returns the vertices and edges that it skipped because they do not form a
    /// forest.
    pub(crate) fn new(parts: &Parts) -> (Self, Vec<GraphError>) {
        let mut graph =
            Self { graph: DiGraph::default(), places: BTreeMap::new(), ups: Vec::new() };
        let mut errors = Vec::new();
        for socket in &parts.sockets {
            graph.add_socket(socket);
        }
        graph.add_numa_nodes(&parts.numa);
        let mut branches: Vec<&Branch> = parts.branches.iter().collect();
        branches.sort_by_key(|branch| branch.place());
        for branch in &branches {
            if graph.add(branch.vertex.clone()).is_none() {
                errors.push(GraphError::Twice(branch.place()));
            }
        }
        errors.extend(branches.iter().filter_map(|branch| graph.hang(branch).err()));
        graph.tell_depths();
        graph.tell_ports();
        graph.tell_insides();
        graph.join_links();
        for branch in &branches {
            graph.join_data_path(branch);
        }
        graph.tell_shape();
        graph.join_numa();
        graph.join_chips();
        for link in &parts.gpu_links {
            graph.join_gpus(link);
        }
        (graph, errors)
    }

    /// `None` if there is a vertex at this place already.
    fn add(&mut self, vertex: Vertex) -> Option<NodeIndex> {
        let place = vertex.place;
        if self.places.contains_key(&place) {
            return None;
        }
        Some(self.add_new(vertex))
    }

    fn add_new(&mut self, vertex: Vertex) -> NodeIndex {
        let place = vertex.place;
        let index = self.graph.add_node(vertex);
        self.places.insert(place, index);
        self.ups.push(Up::default());
        index
    }

    fn add_socket(&mut self, part: &SocketPart) {
        let SocketPart { socket, cpus, evidence } = part.clone();
        let vertex = Vertex::new(Place::Socket(socket), Role::Socket);
        self.add(Vertex { cpus, evidence, ..vertex });
    }

    /// Adds the NUMA nodes, each on its socket, with a SLIT edge between every two.
    fn add_numa_nodes(&mut self, parts: &[NumaPart]) {
        let mut parts: Vec<&NumaPart> = parts.iter().collect();
        parts.sort_by_key(|part| part.node);
        parts.dedup_by_key(|part| part.node);
        let mut nodes = Vec::new();
        for part in &parts {
            let vertex = Vertex::new(Place::Numa(part.node), Role::NumaNode);
            let (cpus, evidence) = (part.cpus.clone(), part.evidence.clone());
            nodes.extend(self.add(Vertex { cpus, evidence, ..vertex }));
            let socket = part.socket.and_then(|socket| self.places.get(&Place::Socket(socket)));
            if let (Some(&node), Some(&socket)) = (nodes.last(), socket) {
                self.graph.add_edge(node, socket, Edge::Attachment);
            }
        }
        for from in 0..nodes.len() {
            for to in from..nodes.len() {
                let slit = Edge::Slit {
                    there: parts[from].distances.get(to).copied(),
                    back: parts[to].distances.get(from).copied(),
                };
                self.graph.add_edge(nodes[from], nodes[to], slit);
            }
        }
    }

    /// Adds the edge from a vertex to its parent. The kind of edge is set once all vertices
    /// exist.
    fn hang(&mut self, branch: &Branch) -> Result<(), GraphError> {
        let Some(parent) = branch.parent else { return Ok(()) };
        let vertex = branch.place();
        let (Some(&index), Some(&above)) = (self.places.get(&vertex), self.places.get(&parent))
        else {
            return Err(GraphError::NoParent { vertex, parent });
        };
        if self.ancestors(Some(above)).any(|ancestor| ancestor == index) {
            return Err(GraphError::Loop(vertex));
        }
        if self.above(index).is_none() {
            let edge = self.graph.add_edge(index, above, Edge::Attachment);
            self.ups[index.index()].parent = Some(Rise { edge, to: above });
        }
        Ok(())
    }

    fn tell_depths(&mut self) {
        for index in self.graph.node_indices() {
            self.ups[index.index()].depth = self.ancestors(Some(index)).count();
        }
    }

    /// Marks a port below a host bridge as a root port.
    fn tell_ports(&mut self) {
        for index in self.graph.node_indices() {
            if !self.graph[index].role.is_port() {
                continue;
            }
            let above = self.above(index).map(|parent| self.graph[parent].role);
            self.graph[index].role = match above {
                None | Some(Role::HostBridge) => Role::RootPort,
                Some(_) => Role::SwitchPort,
            };
        }
    }

    /// Marks the ports inside of GPUs and NICs: a switch by the maker of the device with no other
    /// device below it. Several GPUs of AMD and Intel have one or more in front of them, and NICs of
    /// Pensando have one.
    fn tell_insides(&mut self) {
        for device in self.graph.node_indices() {
            if !self.graph[device].role.is_device() {
                continue;
            }
            let mut outermost = device;
            while let Some(ports) = self.switch_inside(device, outermost) {
                let mut below = outermost;
                for port in ports {
                    self.ups[below.index()].is_inside = true;
                    (below, outermost) = (port, port);
                }
            }
        }
    }

    /// The lower and the upper port of the switch above this vertex, or the whole switch, if it is
    /// inside of the device.
    fn switch_inside(&self, device: NodeIndex, below: NodeIndex) -> Option<Vec<NodeIndex>> {
        let lower = self.above(below)?;
        let ports = match self.graph[lower].role {
            Role::Switch => vec![lower],
            Role::SwitchPort => vec![lower, self.switch_port_above(lower)?],
            _ => return None,
        };
        let upper = *ports.last()?;
        let (maker, _) = self.graph[device].id?;
        let is_own = vendor::is_bridge_of(self.graph[upper].id?, maker);
        (is_own && self.has_one_device(upper)).then_some(ports)
    }

    fn switch_port_above(&self, port: NodeIndex) -> Option<NodeIndex> {
        self.above(port).filter(|above| self.graph[*above].role == Role::SwitchPort)
    }

    /// Returns true if all endpoints below a vertex are functions of one device. A virtual function is
    /// of the device of its physical function.
    fn has_one_device(&self, top: NodeIndex) -> bool {
        let below = self.graph.node_indices().filter(|index| {
            let vertex = &self.graph[*index];
            vertex.role.is_endpoint() && self.ancestors(Some(*index)).any(|above| above == top)
        });
        let slots: BTreeSet<_> = below
            .filter_map(|index| {
                let vertex = &self.graph[index];
                vertex.physical_function.unwrap_or(vertex.place).address()
            })
            .map(PciAddress::slot)
            .collect();
        slots.len() == 1
    }

    /// Marks the edges of the PCI tree that are links, with their speed and width.
    fn join_links(&mut self) {
        for index in self.graph.node_indices() {
            let Some(Rise { edge, to: parent }) = self.up(index).parent else { continue };
            if self.is_link(index, parent) {
                let (lower, upper) = (&self.graph[index], &self.graph[parent]);
                let upper = upper.max_link.filter(|_| upper.role.is_port());
                self.graph[edge] = Edge::Pcie(Link {
                    possible: common(lower.max_link, upper),
                    current: lower.current_link,
                });
            }
        }
    }

    /// Returns true if the edge is a link. Along a path, ports alternate: the lower end of a link,
    /// then a crossing of the switch.
    fn is_link(&self, index: NodeIndex, parent: NodeIndex) -> bool {
        let (vertex, above) = (&self.graph[index], &self.graph[parent]);
        if self.up(index).is_inside {
            return false;
        }
        match (vertex.role, above.role) {
            (_, Role::HostBridge) => !vertex.role.is_port() && vertex.max_link.is_some(),
            (Role::SwitchPort, _) => {
                let ports =
                    self.ancestors(Some(parent)).take_while(|i| self.graph[*i].role.is_port());
                !ports.count().is_multiple_of(2) || !above.role.is_port()
            }
            _ => true,
        }
    }

    fn join_data_path(&mut self, branch: &Branch) {
        let mover = branch.data_path.and_then(|place| self.places.get(&place));
        if let (Some(&nic), Some(&mover)) = (self.places.get(&branch.place()), mover) {
            let edge = self.graph.add_edge(nic, mover, Edge::DataPath);
            self.ups[nic.index()].data_path = Some(Rise { edge, to: mover });
        }
    }

    /// Excludes volumes, and vertices that are only above volumes, from the shape, since they come
    /// and go.
    fn tell_shape(&mut self) {
        let ends = self.graph.node_indices().filter(|index| {
            let role = &self.graph[*index].role;
            role.is_device() || matches!(role, Role::DataPath | Role::Switch)
        });
        let shape: BTreeSet<NodeIndex> =
            ends.flat_map(|index| self.ancestors(Some(index))).collect();
        for vertex in self.graph.node_indices().collect::<Vec<_>>() {
            let is_pci = self.graph[vertex].role.is_pci();
            self.graph[vertex].in_shape = !is_pci || shape.contains(&vertex);
        }
    }

    /// Adds the edges to NUMA nodes. An edge starts at the highest vertex below which all devices
    /// are known to be on this node: the host bridge, or a single device if others below its host
    /// bridge are elsewhere or unknown.
    fn join_numa(&mut self) {
        let mut told: BTreeMap<NodeIndex, BTreeSet<Option<NumaNode>>> = BTreeMap::new();
        for (index, numa) in self.endpoints() {
            for above in self.ancestors(Some(index)) {
                told.entry(above).or_default().insert(numa);
            }
        }
        let nodes = told.into_iter().filter(|(_, nodes)| nodes.len() == 1);
        let nodes: BTreeMap<NodeIndex, NumaNode> = nodes
            .filter_map(|(index, nodes)| Some((index, nodes.first().copied().flatten()?)))
            .collect();
        for (&index, &node) in &nodes {
            if self.above(index).is_some_and(|parent| nodes.contains_key(&parent)) {
                continue;
            }
            let numa = self.numa_index(node, index);
            let edge = self.graph.add_edge(index, numa, Edge::Attachment);
            self.ups[index.index()].numa = Some(Rise { edge, to: numa });
        }
    }

    /// Adds the links between CPUs and GPUs in one package. Data take them instead of PCIe.
    fn join_chips(&mut self) {
        for gpu in self.graph.node_indices() {
            let vertex = &self.graph[gpu];
            let chip = vertex.id.filter(|_| vertex.role == Role::Gpu).and_then(ChipToChip::new);
            let numa = vertex.numa.and_then(|node| self.places.get(&Place::Numa(node)));
            if let (Some(ChipToChip { bandwidth, .. }), Some(&numa)) = (chip, numa) {
                let edge = self.graph.add_edge(gpu, numa, Edge::ChipToChip { bandwidth });
                self.ups[gpu.index()].numa = Some(Rise { edge, to: numa });
            }
        }
    }

    /// The node's vertex. A kernel without NUMA shows no nodes, but its devices still name one.
    fn numa_index(&mut self, node: NumaNode, first: NodeIndex) -> NodeIndex {
        if let Some(&index) = self.places.get(&Place::Numa(node)) {
            return index;
        }
        let evidence = self.graph[first].numa_evidence.clone();
        let vertex = Vertex::new(Place::Numa(node), Role::NumaNode);
        let others = self.places.values().copied();
        let others = others.filter(|other| self.graph[*other].role == Role::NumaNode);
        let others: Vec<NodeIndex> = others.collect();
        let index = self.add_new(Vertex { evidence, in_shape: false, ..vertex });
        for other in others {
            self.graph.add_edge(other, index, Edge::Slit { there: None, back: None });
        }
        index
    }

    /// The GPUs, NICs and disks with their known NUMA nodes.
    fn endpoints(&self) -> impl Iterator<Item = (NodeIndex, Option<NumaNode>)> {
        let all = self.graph.node_indices().map(|index| (index, &self.graph[index]));
        all.filter(|(_, vertex)| vertex.role.is_endpoint()).map(|(i, vertex)| (i, vertex.numa))
    }

    fn join_gpus(&mut self, link: &GpuLink) {
        let GpuLink { gpus: (a, b), fabric, evidence } = link.clone();
        let ends = [a, b].map(|gpu| self.places.get(&Place::Function(gpu)).copied());
        if let [Some(a), Some(b)] = ends
            && a != b
        {
            self.graph.add_edge(a, b, Edge::Fabric { fabric, evidence });
        }
    }
}

/// What both ends support; an end without facts is ignored.
fn common(a: Option<PcieLink>, b: Option<PcieLink>) -> Option<PcieLink> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.common(b)),
        (one, other) => one.or(other),
    }
}
