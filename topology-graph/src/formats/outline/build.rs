//! Builds the outline from the graph. Only this module reads the graph for pictures.

use std::collections::{BTreeMap, BTreeSet};

use super::super::gpu_links::is_boxed;
use super::super::{device_name, endpoints, half_label};
use super::{DeviceKind, Node, OutlineDevice, Port, PortKind, Relation, Row};
use crate::graph::{Place, Role, Vertex};
use crate::{NumaNode, Pair, PciAddress, Topology};

/// One row per NUMA node with devices, by number; devices with unknown node come last.
pub(in super::super) fn outline(topology: &Topology) -> Vec<Row> {
    let source = Source::new(topology);
    let mut nodes: Vec<Option<NumaNode>> = endpoints(topology).map(|vertex| vertex.numa).collect();
    nodes.sort_unstable_by_key(|node| (node.is_none(), *node));
    nodes.dedup();
    nodes
        .into_iter()
        .map(|node| Row { title: title(topology, node), roots: source.trees(RowOf(node)) })
        .collect()
}

/// `NUMA node 0, socket 0, CPUs 0-63`.
fn title(topology: &Topology, node: Option<NumaNode>) -> String {
    let vertex = node.and_then(|node| topology.graph.numa(node));
    let socket = node.and_then(|node| topology.graph.socket_of(node));
    let socket = socket.map_or_else(String::new, |socket| format!(", socket {socket}"));
    let cpus = vertex.map(|vertex| &vertex.cpus).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.map_or_else(String::new, |cpus| format!(", CPUs {cpus}"));
    format!("{}{socket}{cpus}", half_label(node))
}

/// The row in which a device is drawn: that of a NUMA node, or the one for unknown nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowOf(Option<NumaNode>);

/// The input of the trees.
struct Source<'t> {
    topology: &'t Topology,
    /// The rows of the devices below a vertex.
    rows: BTreeMap<Place, BTreeSet<RowOf>>,
    relations: BTreeMap<PciAddress, Relation>,
    /// The GPU that each paired NIC belongs to; the first if several GPUs share it.
    partners: BTreeMap<PciAddress, PciAddress>,
    /// For each paired GPU, the first GPU that has the same NIC.
    leaders: BTreeMap<PciAddress, PciAddress>,
    /// The NIC that each data path serves.
    served: BTreeMap<Place, PciAddress>,
}

/// The order of siblings: a GPU, its NICs and their data paths, the next GPU; then NICs without a
/// GPU, then NVMe controllers. A port sorts by its first device.
type Order = (bool, DeviceKind, PciAddress, DeviceKind, PciAddress);

impl<'t> Source<'t> {
    fn new(topology: &'t Topology) -> Self {
        let nics = topology.nics().iter().map(|nic| nic.address);
        let served = nics.filter_map(|nic| {
            let data_path = topology.graph.data_path(Place::Function(nic))?;
            Some((data_path.place, nic))
        });
        let served = served.collect();
        let pairs = topology.pairs();
        let (mut partners, mut leaders) = (BTreeMap::new(), BTreeMap::new());
        for pair in &pairs {
            let leader = *partners.entry(pair.nic).or_insert(pair.gpu);
            leaders.entry(pair.gpu).or_insert(leader);
        }
        let mut source = Self {
            topology,
            rows: BTreeMap::new(),
            relations: relations(topology),
            partners,
            leaders,
            served,
        };
        source.rows = source.rows_of_all();
        source
    }

    /// Adds each device's row to all vertices above it.
    fn rows_of_all(&self) -> BTreeMap<Place, BTreeSet<RowOf>> {
        let mut rows: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for vertex in self.topology.graph.pci() {
            let Some(own) = self.own_row(vertex) else { continue };
            for above in self.topology.graph.chain(vertex.place) {
                rows.entry(above.place).or_default().insert(own);
            }
        }
        rows
    }

    /// The row of a vertex; a data path is in the row of its NIC.
    fn own_row(&self, vertex: &Vertex) -> Option<RowOf> {
        if vertex.role.is_endpoint() {
            return Some(RowOf(vertex.numa));
        }
        let nic = self.served.get(&vertex.place)?;
        Some(RowOf(self.topology.nic(*nic)?.numa))
    }

    fn trees(&self, row: RowOf) -> Vec<Node> {
        self.drawn(self.topology.graph.tops(), row)
    }

    /// These vertices with everything below them that leads to devices of a row.
    fn drawn<'v>(&self, vertices: impl IntoIterator<Item = &'v Vertex>, row: RowOf) -> Vec<Node> {
        let vertices = vertices
            .into_iter()
            .filter(|vertex| self.rows.get(&vertex.place).is_some_and(|rows| rows.contains(&row)));
        let mut nodes: Vec<Node> = vertices.flat_map(|vertex| self.nodes(vertex, row)).collect();
        nodes.sort_by_cached_key(|node| self.order(node));
        nodes
    }

    fn nodes(&self, vertex: &Vertex, row: RowOf) -> Vec<Node> {
        let children = self.drawn(self.topology.graph.children(vertex.place), row);
        if let Some(device) = self.device(vertex) {
            let own = (self.own_row(vertex) == Some(row)).then_some(Node::Device(device));
            return own.into_iter().chain(children).collect();
        }
        let Some(kind) = self.port_kind(vertex) else { return children };
        let is_shared = self.rows.get(&vertex.place).is_some_and(|rows| rows.len() > 1);
        vec![Node::Port(Port { kind, place: vertex.place.to_string(), is_shared, children })]
    }

    /// `None` for the downstream ports of a switch, which are drawn as part of the switch.
    fn port_kind(&self, vertex: &Vertex) -> Option<PortKind> {
        let graph = &self.topology.graph;
        match vertex.role {
            Role::HostBridge => Some(PortKind::HostBridge),
            Role::RootPort => Some(PortKind::RootPort),
            Role::SwitchPort if graph.link_above(vertex.place).is_some() => Some(PortKind::Switch),
            Role::SwitchPort => graph.parent(vertex.place).is_none().then_some(PortKind::Switch),
            _ => Some(PortKind::Switch),
        }
    }

    fn device(&self, vertex: &Vertex) -> Option<OutlineDevice> {
        let Place::Function(address) = vertex.place else { return None };
        let kind = match vertex.role {
            Role::Gpu => DeviceKind::Gpu,
            Role::Nic => DeviceKind::Nic,
            Role::Nvme => DeviceKind::Nvme,
            Role::DataPath => DeviceKind::DataPath,
            _ => return None,
        };
        let nic = self.served.get(&vertex.place).copied();
        let (name, known_as) = match nic.filter(|_| kind == DeviceKind::DataPath) {
            Some(nic) => (device_name(self.topology, nic)?.0, Some("data path".to_owned())),
            None if kind == DeviceKind::DataPath => ("data path".to_owned(), None),
            None => device_name(self.topology, address)?,
        };
        let relation = self.relations.get(&address).cloned();
        let pair_group = self.pair_group(nic.unwrap_or(address));
        Some(OutlineDevice { kind, name, known_as, address, relation, pair_group })
    }

    fn pair_group(&self, address: PciAddress) -> Option<usize> {
        let gpu = self.partners.get(&address).or_else(|| self.leaders.get(&address));
        let gpu = gpu.copied().unwrap_or(address);
        let gpus: BTreeSet<PciAddress> = self.partners.values().copied().collect();
        gpus.into_iter().position(|paired| paired == gpu)
    }

    fn order(&self, node: &Node) -> Option<Order> {
        node.devices().into_iter().map(|device| self.device_order(device)).min()
    }

    fn device_order(&self, device: &OutlineDevice) -> Order {
        let OutlineDevice { kind, address, .. } = *device;
        let served = self.served.get(&Place::Function(address)).copied();
        let nic = served.unwrap_or(address);
        let partner = self.partners.get(&nic).copied();
        let gpu = partner.or_else(|| (kind == DeviceKind::Gpu).then_some(address));
        let first = if kind == DeviceKind::DataPath { DeviceKind::Nic } else { kind };
        match gpu {
            Some(gpu) => (false, DeviceKind::Gpu, gpu, kind, address),
            None => (true, first, nic, kind, address),
        }
    }
}

/// For GPUs, the path within their mesh; for NICs, the path to the GPU that they are paired with, and
/// how many more GPUs share them.
fn relations(topology: &Topology) -> BTreeMap<PciAddress, Relation> {
    let meshes = topology.graph.meshes().into_iter().filter(is_boxed);
    let gpus = meshes.flat_map(|mesh| {
        let relation = Relation { path: mesh.fabric.path(), gpu: None };
        mesh.gpus.into_iter().map(move |gpu| (gpu, relation.clone()))
    });
    let mut by_nic: BTreeMap<PciAddress, Vec<Pair>> = BTreeMap::new();
    for pair in topology.pairs() {
        by_nic.entry(pair.nic).or_default().push(pair);
    }
    let nics = by_nic.into_iter().filter_map(|(nic, pairs)| {
        let first = pairs.first()?;
        let gpu = topology.gpu(first.gpu).map(|gpu| match pairs.len() {
            1 => gpu.name.clone(),
            several => format!("{} +{}", gpu.name, several - 1),
        });
        Some((nic, Relation { path: first.path, gpu }))
    });
    gpus.chain(nics).collect()
}
