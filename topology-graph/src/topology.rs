//! The model of one machine: its GPUs, NICs and NVMe controllers, and how far they
//! are apart.
//!
//! Built from facts or from a `NodeTopology`; both give the same answers. It
//! decides nothing about pods.

use std::collections::BTreeMap;

use crate::build::{Built, NicStates, Verdicts, build, build_overlay, verdicts};
use crate::device::{Gpu, Identities, Nic, Nvme, gpus, nics, nvmes};
use crate::graph::{Graph, GraphError, common_place, pcie_path};
use crate::shape::{Place, Role, Shape, Vertex};
use crate::{Anomaly, Gdr, NumaNode, Overlay, PathKind, PciAddress, PcieLink, ShapeHash, Snapshot};

/// One machine's graph of PCIe and NUMA distances.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) shape: Shape,
    pub(crate) hash: ShapeHash,
    /// NVMe controllers, and the bridges above only them.
    pub(crate) storage: Vec<Vertex>,
    pub(crate) identities: Identities,
    pub(crate) nic_states: NicStates,
    /// Memory of NUMA nodes in bytes.
    pub(crate) memory: BTreeMap<NumaNode, u64>,
    pub(crate) fabric: Option<String>,
    pub(crate) anomalies: Vec<Anomaly>,
    pub(crate) graph: Graph,
    gpus: Vec<Gpu>,
    nics: Vec<Nic>,
    nvmes: Vec<Nvme>,
    /// On GPUDirect RDMA, by GPU and NIC; what is not here is unknown.
    pub(crate) gdr: Verdicts,
    /// All endpoints by address, and the paths between them, row by row.
    devices: Vec<PciAddress>,
    paths: Vec<PathKind>,
}

impl Topology {
    /// The graph of these facts, and all that was strange on the way. Where overlays
    /// tell what the kernel does not, the first of them counts.
    pub fn build<'o>(
        snapshot: &Snapshot,
        overlays: impl IntoIterator<Item = &'o Overlay>,
    ) -> (Self, Vec<Anomaly>) {
        let overlays: Vec<&Overlay> = overlays.into_iter().collect();
        let built = build(snapshot, &overlays);
        let anomalies = built.anomalies.clone();
        // Facts list each place once, with its parent; there is nothing to refuse.
        let (mut topology, _) = Self::assemble(built, None);
        let path = |gpu, nic| topology.path(gpu, nic);
        topology.gdr = verdicts(snapshot, &topology.shape, &topology.graph, path);
        (topology, anomalies)
    }

    /// The graph of a machine of which only a description is at hand.
    pub fn from_overlay(overlay: &Overlay) -> (Self, Vec<Anomaly>) {
        let built = build_overlay(overlay);
        let anomalies = built.anomalies.clone();
        let (topology, _) = Self::assemble(built, None);
        (topology, anomalies)
    }

    /// `hash` where another program has named the shape already.
    pub(crate) fn assemble(built: Built, hash: Option<ShapeHash>) -> (Self, Vec<GraphError>) {
        let Built { mut shape, mut storage, identities, nic_states, memory, anomalies } = built;
        shape.vertices.sort_by_key(|vertex| vertex.place);
        storage.sort_by_key(|vertex| vertex.place);
        let (graph, errors) = Graph::new(&[&shape.vertices[..], &storage].concat());
        let (devices, paths) = paths(&shape, &storage, &graph);
        let topology = Self {
            gpus: gpus(&shape.vertices, &identities),
            nics: nics(&shape.vertices, &identities, &nic_states),
            nvmes: nvmes(&storage, &identities),
            hash: hash.unwrap_or_else(|| shape.hash()),
            graph,
            shape,
            storage,
            identities,
            nic_states,
            memory,
            fabric: None,
            anomalies,
            gdr: Verdicts::new(),
            devices,
            paths,
        };
        (topology, errors)
    }

    /// The GPUs by address.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// The network controllers by address.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// The GPU at this address.
    pub fn gpu(&self, address: PciAddress) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.address == address)
    }

    /// The network controller at this address.
    pub fn nic(&self, address: PciAddress) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.address == address)
    }

    /// The NVMe controllers by address.
    pub fn nvmes(&self) -> &[Nvme] {
        &self.nvmes
    }

    /// The NVMe controller at this address.
    pub fn nvme(&self, address: PciAddress) -> Option<&Nvme> {
        self.nvmes.iter().find(|nvme| nvme.address == address)
    }

    /// The network within which the machine's NICs reach others, where somebody told it.
    pub fn fabric(&self) -> Option<&str> {
        self.fabric.as_deref()
    }

    /// The same machine, known to be on this fabric.
    #[must_use]
    pub fn on_fabric(self, fabric: Option<String>) -> Self {
        Self { fabric, ..self }
    }

    /// How far two devices are apart; unknown for one that is not here.
    pub fn path(&self, a: PciAddress, b: PciAddress) -> PathKind {
        let (a, b) = (self.devices.binary_search(&a), self.devices.binary_search(&b));
        let (Ok(a), Ok(b)) = (a, b) else { return PathKind::Unknown };
        self.paths.get(a * self.devices.len() + b).copied().unwrap_or(PathKind::Unknown)
    }

    /// Whether this NIC can reach this GPU's memory directly.
    pub fn gdr(&self, gpu: PciAddress, nic: PciAddress) -> Gdr {
        self.gdr.get(&(gpu, nic)).copied().unwrap_or(Gdr::Unknown)
    }

    /// What the narrowest PCIe link between two devices could carry in one direction,
    /// in megabytes per second; nothing where no link on the way is known. Links
    /// between CPUs are not counted: nobody tells of them.
    pub fn megabytes_per_second(&self, a: PciAddress, b: PciAddress) -> Option<u32> {
        let chains = self.graph.nearest_chains(Place::Function(a), Place::Function(b));
        let common = common_place(&chains[0], &chains[1]);
        let below = chains
            .iter()
            .flat_map(|chain| chain.iter().take_while(move |vertex| Some(vertex.place) != common));
        below.filter_map(|vertex| vertex.max_link).map(PcieLink::megabytes_per_second).min()
    }

    /// Every path between two devices anew: all endpoints by address, row by row.
    /// [`Topology::path`] remembers them; this is what remembering costs.
    pub fn all_paths(&self) -> Vec<PathKind> {
        paths(&self.shape, &self.storage, &self.graph).1
    }

    /// The hash of everything here that is the same on equal hardware.
    pub fn shape(&self) -> ShapeHash {
        self.hash
    }

    /// What was strange about the machine.
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.anomalies
    }

    /// All vertices of the PCI tree by place.
    pub(crate) fn vertices(&self) -> impl Iterator<Item = &Vertex> {
        let mut vertices: Vec<_> = self.shape.vertices.iter().chain(&self.storage).collect();
        vertices.sort_by_key(|vertex| vertex.place);
        vertices.into_iter()
    }

    /// All endpoints by address.
    pub(crate) fn endpoints(&self) -> &[PciAddress] {
        &self.devices
    }

    /// A device and all above it, nearest first.
    pub(crate) fn chain(&self, device: PciAddress) -> Vec<&Vertex> {
        self.graph.chain(Place::Function(device))
    }
}

/// All paths between two devices, with the devices in order.
fn paths(shape: &Shape, storage: &[Vertex], graph: &Graph) -> (Vec<PciAddress>, Vec<PathKind>) {
    let vertices = shape.vertices.iter().chain(storage);
    let mut devices: Vec<PciAddress> = vertices.filter_map(Vertex::endpoint).collect();
    devices.sort_unstable();
    let places = devices.iter().copied().map(Place::Function);
    let chains: Vec<[Vec<&Vertex>; 2]> =
        places.map(|place| [graph.chain(place), graph.data_chain(place)]).collect();
    let links: BTreeMap<_, _> =
        shape.gpu_links.iter().map(|link| (link.gpus, link.fabric.path())).collect();
    let mut paths = vec![PathKind::Same; devices.len() * devices.len()];
    for (row, a) in devices.iter().enumerate() {
        for (column, b) in devices.iter().enumerate().skip(row + 1) {
            let pcie = || nearest_path(&chains[row], &chains[column]);
            let path = links.get(&(*a, *b)).copied().unwrap_or_else(pcie);
            paths[row * devices.len() + column] = path;
            paths[column * devices.len() + row] = path;
        }
    }
    (devices, paths)
}

/// Each with its own chain and that of its data; only between a GPU and a NIC can
/// data go another way than the device's own.
fn nearest_path(a: &[Vec<&Vertex>; 2], b: &[Vec<&Vertex>; 2]) -> PathKind {
    let own = pcie_path(&a[0], &b[0]);
    let role = |chains: &[Vec<&Vertex>; 2]| chains[0].first().map(|vertex| vertex.role);
    match (role(a), role(b)) {
        (Some(Role::Gpu), Some(Role::Nic)) | (Some(Role::Nic), Some(Role::Gpu)) => {
            own.min(pcie_path(&a[1], &b[1]))
        }
        _ => own,
    }
}
