//! The model of one machine: its GPUs and NICs, and how far they are apart.
//!
//! Built from facts or from a `NodeTopology`; both give the same answers. It
//! decides nothing about pods.

use std::collections::BTreeMap;

use crate::build::{Built, Verdicts, build, build_overlay, verdicts};
use crate::graph::{Graph, GraphError, common_place, pcie_path};
use crate::identity::Identity;
use crate::shape::{Place, Role, Shape, Vertex};
use crate::{
    Anomaly, Gdr, LinkLayer, NumaNode, Overlay, PathKind, PciAddress, PcieLink, ShapeHash, Snapshot,
};

/// One machine's graph of PCIe and NUMA distances.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) shape: Shape,
    pub(crate) hash: ShapeHash,
    pub(crate) identities: BTreeMap<PciAddress, Identity>,
    pub(crate) anomalies: Vec<Anomaly>,
    pub(crate) graph: Graph,
    gpus: Vec<Gpu>,
    nics: Vec<Nic>,
    /// On GPUDirect RDMA, by GPU and NIC; what is not here is unknown.
    pub(crate) gdr: Verdicts,
    /// GPUs and NICs by address, and the paths between them, row by row.
    devices: Vec<PciAddress>,
    paths: Vec<PathKind>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Where it is.
    pub address: PciAddress,
    /// `GPU0` and on, in the order of addresses, as `nvidia-smi` numbers them.
    pub name: String,
    /// Its unique name, where its driver tells one.
    pub uuid: Option<String>,
    /// The product's name, where its driver tells one.
    pub model: Option<String>,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Its NUMA node with CPUs.
    pub numa: Option<NumaNode>,
}

/// One network controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Where it is.
    pub address: PciAddress,
    /// `NIC0` and on, in the order of addresses.
    pub name: String,
    /// Its RDMA device, `mlx5_0`; the first, where it has several.
    pub rdma_device: Option<String>,
    /// Its network interfaces.
    pub netdevs: Vec<String>,
    /// What runs below its verbs.
    pub link_layer: Option<LinkLayer>,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Its NUMA node with CPUs.
    pub numa: Option<NumaNode>,
}

impl Nic {
    /// What the kernel calls it: its RDMA device, else its first interface.
    pub fn kernel_name(&self) -> Option<&String> {
        self.rdma_device.as_ref().or_else(|| self.netdevs.first())
    }
}

impl Topology {
    /// The graph of these facts, and all that was strange on the way.
    pub fn build(snapshot: &Snapshot, overlay: Option<&Overlay>) -> (Self, Vec<Anomaly>) {
        let built = build(snapshot, overlay);
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
        let Built { mut shape, identities, anomalies } = built;
        shape.vertices.sort_by_key(|vertex| vertex.place);
        let (graph, errors) = Graph::new(&shape);
        let (devices, paths) = paths(&shape, &graph);
        let topology = Self {
            gpus: gpus(&shape, &identities),
            nics: nics(&shape, &identities),
            hash: hash.unwrap_or_else(|| shape.hash()),
            graph,
            shape,
            identities,
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

    /// Every path between two devices anew: GPUs and NICs by address, row by row.
    /// [`Topology::path`] remembers them; this is what remembering costs.
    pub fn all_paths(&self) -> Vec<PathKind> {
        paths(&self.shape, &self.graph).1
    }

    /// The hash of everything here that is the same on equal hardware.
    pub fn shape(&self) -> ShapeHash {
        self.hash
    }

    /// What was strange about the machine.
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.anomalies
    }

    /// A device and all above it, nearest first.
    pub(crate) fn chain(&self, device: PciAddress) -> Vec<&Vertex> {
        self.graph.chain(Place::Function(device))
    }
}

/// All paths between two devices, with the devices in order.
fn paths(shape: &Shape, graph: &Graph) -> (Vec<PciAddress>, Vec<PathKind>) {
    let devices: Vec<PciAddress> = shape.devices().map(|(address, _)| address).collect();
    let places = devices.iter().copied().map(Place::Function);
    let chains: Vec<[Vec<&Vertex>; 2]> =
        places.map(|place| [graph.chain(place), graph.data_chain(place)]).collect();
    let nvlinks: BTreeMap<_, _> =
        shape.nvlinks.iter().map(|nvlink| (nvlink.gpus, nvlink.links)).collect();
    let mut paths = vec![PathKind::Same; devices.len() * devices.len()];
    for (row, a) in devices.iter().enumerate() {
        for (column, b) in devices.iter().enumerate().skip(row + 1) {
            let pcie = || nearest_path(&chains[row], &chains[column]);
            let path = nvlinks.get(&(*a, *b)).copied().map_or_else(pcie, PathKind::NvLink);
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

fn gpus(shape: &Shape, identities: &BTreeMap<PciAddress, Identity>) -> Vec<Gpu> {
    let gpus = shape.devices().filter(|(_, vertex)| vertex.role == Role::Gpu);
    gpus.enumerate()
        .map(|(index, (address, vertex))| {
            let identity = identities.get(&address).cloned().unwrap_or_default();
            let (vendor, device) = vertex.id.unwrap_or_default();
            Gpu {
                address,
                name: format!("GPU{index}"),
                uuid: identity.uuid,
                model: identity.model,
                vendor,
                device,
                numa: vertex.numa,
            }
        })
        .collect()
}

fn nics(shape: &Shape, identities: &BTreeMap<PciAddress, Identity>) -> Vec<Nic> {
    let nics = shape.devices().filter(|(_, vertex)| vertex.role == Role::Nic);
    nics.enumerate()
        .map(|(index, (address, vertex))| {
            let identity = identities.get(&address).cloned().unwrap_or_default();
            let (vendor, device) = vertex.id.unwrap_or_default();
            Nic {
                address,
                name: format!("NIC{index}"),
                rdma_device: identity.rdma_device,
                netdevs: identity.netdevs,
                link_layer: vertex.link_layer,
                vendor,
                device,
                numa: vertex.numa,
            }
        })
        .collect()
}
