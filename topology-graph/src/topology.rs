//! The model of one machine: its GPUs and NICs, and how far they are apart.
//!
//! Built from facts or from a `NodeTopology`; both give the same answers. It
//! decides nothing about pods.

use std::collections::BTreeMap;

use crate::build::{Built, build, build_overlay};
use crate::graph::{Graph, GraphError, pcie_path};
use crate::identity::Identity;
use crate::shape::{Place, Role, Shape, Vertex};
use crate::{Anomaly, LinkLayer, NumaNode, Overlay, PathKind, PciAddress, ShapeHash, Snapshot};

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
        let (topology, _) = Self::assemble(built, None);
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
    let chains: Vec<Vec<&Vertex>> =
        devices.iter().map(|device| graph.chain(Place::Function(*device))).collect();
    let nvlinks: BTreeMap<_, _> =
        shape.nvlinks.iter().map(|nvlink| (nvlink.gpus, nvlink.links)).collect();
    let mut paths = vec![PathKind::Same; devices.len() * devices.len()];
    for (row, a) in devices.iter().enumerate() {
        for (column, b) in devices.iter().enumerate().skip(row + 1) {
            let pcie = || pcie_path(&chains[row], &chains[column]);
            let path = nvlinks.get(&(*a, *b)).copied().map_or_else(pcie, PathKind::NvLink);
            paths[row * devices.len() + column] = path;
            paths[column * devices.len() + row] = path;
        }
    }
    (devices, paths)
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
