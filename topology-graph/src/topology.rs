//! The model of one machine: its GPUs, NICs and NVMe controllers, and the distances between them.
//!
//! It is built from facts or from a `NodeTopology`; both give the same results. It makes no
//! decisions about pods.

use std::collections::BTreeMap;

use crate::build::{Built, Verdicts, build, build_overlay, verdicts};
use crate::device::{Gpu, Identities, Nic, Nvme, gpus, nics, nvmes};
use crate::graph::{Distance, Graph, GraphError, Vertex};
use crate::nic_role::FactsOfNics;
use crate::{
    Accelerator, Anomaly, Gdr, NcclXml, NumaNode, Overlay, PathKind, PciAddress, ShapeHash,
    Snapshot,
};

/// One machine's graph of PCIe and NUMA distances.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) graph: Graph,
    pub(crate) hash: ShapeHash,
    pub(crate) identities: Identities,
    pub(crate) nic_facts: FactsOfNics,
    /// Memory of NUMA nodes in bytes.
    pub(crate) memory: BTreeMap<NumaNode, u64>,
    /// The topology file on the machine for NCCL. A published graph does not have it.
    pub(crate) nccl_file: Option<NcclXml>,
    pub(crate) fabric: Option<String>,
    pub(crate) anomalies: Vec<Anomaly>,
    gpus: Vec<Gpu>,
    pub(crate) nics: Vec<Nic>,
    nvmes: Vec<Nvme>,
    /// GPUDirect RDMA verdicts by GPU and NIC; a missing entry is unknown.
    pub(crate) gdr: Verdicts,
    /// All endpoints by address.
    devices: Vec<PciAddress>,
}

impl Topology {
    /// Builds the graph from facts. Returns it with all anomalies. For facts that the kernel does
    /// not show, the first overlay that has them wins.
    pub fn build<'o>(
        snapshot: &Snapshot,
        overlays: impl IntoIterator<Item = &'o Overlay>,
    ) -> (Self, Vec<Anomaly>) {
        Self::build_with(snapshot, overlays, &[])
    }

    /// The same; functions are GPUs also if they are among these accelerators. A function that has a
    /// network class is a NIC in any case.
    pub fn build_with<'o>(
        snapshot: &Snapshot,
        overlays: impl IntoIterator<Item = &'o Overlay>,
        accelerators: &[Accelerator],
    ) -> (Self, Vec<Anomaly>) {
        let overlays: Vec<&Overlay> = overlays.into_iter().collect();
        let built = build(snapshot, &overlays, accelerators);
        let anomalies = built.anomalies.clone();
        // Facts list each place once, with its parent, so no vertex is skipped.
        let (mut topology, _) = Self::assemble(built, None);
        topology.gdr = verdicts(snapshot, &topology.graph);
        (topology, anomalies)
    }

    /// Builds the graph of a machine from a description alone.
    pub fn from_overlay(overlay: &Overlay) -> (Self, Vec<Anomaly>) {
        let built = build_overlay(overlay);
        let anomalies = built.anomalies.clone();
        let (topology, _) = Self::assemble(built, None);
        (topology, anomalies)
    }

    /// `hash` is set if another program has already computed the shape's hash.
    pub(crate) fn assemble(built: Built, hash: Option<ShapeHash>) -> (Self, Vec<GraphError>) {
        let Built { parts, identities, nics: nic_facts, acs, memory, nccl_file, anomalies } = built;
        let (graph, errors) = Graph::new(&parts);
        let devices = graph.vertices().filter_map(Vertex::endpoint).collect();
        let mut topology = Self {
            gpus: gpus(&graph, &identities),
            nics: nics(&graph, &identities, &acs),
            nvmes: nvmes(&graph, &identities),
            hash: hash.unwrap_or_else(|| graph.hash()),
            graph,
            identities,
            nic_facts,
            memory,
            nccl_file,
            fabric: None,
            anomalies,
            gdr: Verdicts::new(),
            devices,
        };
        topology.settle_roles();
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
        let index = self.nics.binary_search_by_key(&address, |nic| nic.address).ok()?;
        self.nics.get(index)
    }

    /// The NVMe controllers by address.
    pub fn nvmes(&self) -> &[Nvme] {
        &self.nvmes
    }

    /// The NVMe controller at this address.
    pub fn nvme(&self, address: PciAddress) -> Option<&Nvme> {
        self.nvmes.iter().find(|nvme| nvme.address == address)
    }

    /// The network within which the machine's NICs reach others, if known.
    pub fn fabric(&self) -> Option<&str> {
        self.fabric.as_deref()
    }

    /// The same machine with this fabric.
    #[must_use]
    pub fn on_fabric(self, fabric: Option<String>) -> Self {
        Self { fabric, ..self }
    }

    /// The path kind between two devices; unknown if one does not exist.
    pub fn path(&self, a: PciAddress, b: PciAddress) -> PathKind {
        self.graph.distance(a, b).map_or(PathKind::Unknown, Distance::kind)
    }

    /// Whether a GPU and a NIC are on one CPU socket, as far as sockets are known.
    pub fn shares_socket(&self, gpu: PciAddress, nic: PciAddress) -> bool {
        let of_gpu = self.gpu(gpu).and_then(|gpu| self.graph.socket_of(gpu.numa?));
        of_gpu.is_some() && of_gpu == self.nic(nic).and_then(|nic| self.graph.socket_of(nic.numa?))
    }

    /// The distance between two devices; `None` if one does not exist or no path is known.
    pub(crate) fn distance(&self, a: PciAddress, b: PciAddress) -> Option<Distance> {
        self.graph.distance(a, b)
    }

    /// Whether this NIC can access this GPU's memory directly.
    pub fn gdr(&self, gpu: PciAddress, nic: PciAddress) -> Gdr {
        self.gdr.get(&(gpu, nic)).copied().unwrap_or(Gdr::Unknown)
    }

    /// The capacity of the narrowest PCIe link between two devices in one direction, in megabytes
    /// per second; see [`crate::Route::bottleneck`].
    pub fn megabytes_per_second(&self, a: PciAddress, b: PciAddress) -> Option<u32> {
        Some(self.route(a, b)?.bottleneck()?.megabytes_per_second)
    }

    /// Every path between two devices: all endpoints by address, row by row. For benchmarks.
    pub fn all_paths(&self) -> Vec<PathKind> {
        let rows = self.devices.iter();
        rows.flat_map(|a| self.devices.iter().map(|b| self.path(*a, *b))).collect()
    }

    /// The hash of everything that is equal on equal hardware.
    pub fn shape(&self) -> ShapeHash {
        self.hash
    }

    /// The anomalies of the machine.
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.anomalies
    }

    /// The GPUs and NICs, by address.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (PciAddress, &Vertex)> {
        let devices = self.graph.vertices().filter(|vertex| vertex.role.is_device());
        devices.filter_map(|vertex| Some((vertex.endpoint()?, vertex)))
    }

    /// All endpoints by address.
    pub(crate) fn endpoints(&self) -> &[PciAddress] {
        &self.devices
    }
}
