//! The endpoints of a machine as callers see them: GPUs, network controllers, NVMe
//! controllers.

use std::collections::BTreeMap;

use crate::graph::{Graph, Role, Vertex};
use crate::identity::Identity;
use crate::{Acs, LinkLayer, NumaNode, PciAddress, PcieLink};

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
    /// Its link as it runs.
    pub current_link: Option<PcieLink>,
    /// The link that it could run.
    pub max_link: Option<PcieLink>,
    /// What the ports above it do with requests to its peers.
    pub acs: Option<Acs>,
}

/// One NVMe controller. Volumes come and go, so it is no part of the shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvme {
    /// Where it is.
    pub address: PciAddress,
    /// `NVME0` and on, in the order of addresses.
    pub name: String,
    /// What the kernel calls it, `nvme0`.
    pub kernel_name: Option<String>,
    /// Its NUMA node with CPUs.
    pub numa: Option<NumaNode>,
}

impl Nic {
    /// What the kernel calls it: its RDMA device, else its first interface.
    pub fn kernel_name(&self) -> Option<&String> {
        self.rdma_device.as_ref().or_else(|| self.netdevs.first())
    }
}

/// Names by address.
pub(crate) type Identities = BTreeMap<PciAddress, Identity>;

pub(crate) fn gpus(graph: &Graph, identities: &Identities) -> Vec<Gpu> {
    let gpu = |(index, (address, vertex)): (usize, (PciAddress, &Vertex))| {
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
    };
    of(graph, Role::Gpu).enumerate().map(gpu).collect()
}

pub(crate) fn nics(
    graph: &Graph,
    identities: &Identities,
    acs: &BTreeMap<PciAddress, Acs>,
) -> Vec<Nic> {
    let nic = |(index, (address, vertex)): (usize, (PciAddress, &Vertex))| {
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
            current_link: vertex.current_link,
            max_link: vertex.max_link,
            acs: acs.get(&address).copied(),
        }
    };
    of(graph, Role::Nic).enumerate().map(nic).collect()
}

pub(crate) fn nvmes(graph: &Graph, identities: &Identities) -> Vec<Nvme> {
    let nvme = |(index, (address, vertex)): (usize, (PciAddress, &Vertex))| Nvme {
        address,
        name: format!("NVME{index}"),
        kernel_name: identities.get(&address).and_then(|identity| identity.nvme.clone()),
        numa: vertex.numa,
    };
    of(graph, Role::Nvme).enumerate().map(nvme).collect()
}

/// The functions of a role with their addresses, in the order of addresses.
fn of(graph: &Graph, role: Role) -> impl Iterator<Item = (PciAddress, &Vertex)> {
    let vertices = graph.vertices().filter(move |vertex| vertex.role == role);
    vertices.filter_map(|vertex| Some((vertex.endpoint()?, vertex)))
}
