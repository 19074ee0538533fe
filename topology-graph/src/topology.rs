//! The model of one machine: its GPUs, NICs and NVMe controllers, and how far they
//! are apart.
//!
//! Built from facts or from a `NodeTopology`; both give the same answers. It
//! decides nothing about pods.

use std::collections::BTreeMap;

use crate::build::{Built, Verdicts, build, build_overlay, verdicts};
use crate::device::{Gpu, Identities, Nic, Nvme, gpus, nics, nvmes};
use crate::graph::{Graph, GraphError, Place, Vertex};
use crate::{Acs, Anomaly, Gdr, NumaNode, Overlay, PathKind, PciAddress, ShapeHash, Snapshot};

/// One machine's graph of PCIe and NUMA distances.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) graph: Graph,
    pub(crate) hash: ShapeHash,
    pub(crate) identities: Identities,
    /// What the ports above NICs do with requests to their peers.
    pub(crate) acs: BTreeMap<PciAddress, Acs>,
    /// Memory of NUMA nodes in bytes.
    pub(crate) memory: BTreeMap<NumaNode, u64>,
    pub(crate) fabric: Option<String>,
    pub(crate) anomalies: Vec<Anomaly>,
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
        topology.gdr = verdicts(snapshot, &topology.graph);
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
        let Built { parts, identities, acs, memory, anomalies } = built;
        let (graph, errors) = Graph::new(&parts);
        let (devices, paths) = paths(&graph);
        let topology = Self {
            gpus: gpus(&graph, &identities),
            nics: nics(&graph, &identities, &acs),
            nvmes: nvmes(&graph, &identities),
            hash: hash.unwrap_or_else(|| graph.hash()),
            graph,
            identities,
            acs,
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

    /// What the narrowest PCIe link between two devices carries in one direction, in
    /// megabytes per second; see [`crate::Route::bottleneck`].
    pub fn megabytes_per_second(&self, a: PciAddress, b: PciAddress) -> Option<u32> {
        Some(self.route(a, b)?.bottleneck()?.megabytes_per_second)
    }

    /// Every path between two devices anew: all endpoints by address, row by row.
    /// [`Topology::path`] remembers them; this is what remembering costs.
    pub fn all_paths(&self) -> Vec<PathKind> {
        paths(&self.graph).1
    }

    /// The hash of everything here that is the same on equal hardware.
    pub fn shape(&self) -> ShapeHash {
        self.hash
    }

    /// What was strange about the machine.
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.anomalies
    }

    /// GPUs and NICs by address.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (PciAddress, &Vertex)> {
        let devices = self.graph.vertices().filter(|vertex| vertex.role.is_device());
        devices.filter_map(|vertex| Some((vertex.endpoint()?, vertex)))
    }

    /// All endpoints by address.
    pub(crate) fn endpoints(&self) -> &[PciAddress] {
        &self.devices
    }
}

/// All paths between two devices, with the devices in order.
fn paths(graph: &Graph) -> (Vec<PciAddress>, Vec<PathKind>) {
    let devices: Vec<PciAddress> = graph.vertices().filter_map(Vertex::endpoint).collect();
    let places: Vec<Place> = devices.iter().copied().map(Place::Function).collect();
    let mut paths = vec![PathKind::Unknown; devices.len() * devices.len()];
    for (row, from) in places.iter().enumerate() {
        for (column, kind) in graph.kinds(*from, &places).into_iter().enumerate() {
            if graph.starts_before(*from, places[column]) {
                paths[row * devices.len() + column] = kind;
                paths[column * devices.len() + row] = kind;
            }
        }
    }
    (devices, paths)
}
