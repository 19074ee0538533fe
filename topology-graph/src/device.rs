//! The endpoints of a machine: GPUs, network controllers and NVMe controllers.

use std::collections::BTreeMap;

use crate::graph::{Graph, Role};
use crate::{Acs, DeviceIdentity, LinkLayer, NicRole, NumaNode, PciAddress, PcieLink, PortState};

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its PCI address.
    pub address: PciAddress,
    /// `GPU0`, `GPU1`, …, in address order, as `nvidia-smi` numbers them.
    pub name: String,
    /// Its UUID, if its driver shows one.
    pub uuid: Option<String>,
    /// Its product name, if its driver shows one.
    pub model: Option<String>,
    /// The PCI vendor ID.
    pub vendor: u16,
    /// The PCI device ID.
    pub device: u16,
    /// Its NUMA node; always one with CPUs.
    pub numa: Option<NumaNode>,
}

/// A network controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Its PCI address.
    pub address: PciAddress,
    /// `NIC0`, `NIC1`, …, in address order.
    pub name: String,
    /// Its RDMA device, `mlx5_0`; the first if there are several.
    pub rdma_device: Option<String>,
    /// Its network interfaces.
    pub netdevs: Vec<String>,
    /// The link layer of its RDMA ports.
    pub link_layer: Option<LinkLayer>,
    /// What it is for.
    pub role: NicRole,
    /// Why it has this role.
    pub role_reason: String,
    /// The rate of its best port, in megabits per second. Without a link it is that of an idle
    /// port.
    pub rate_megabits: Option<u32>,
    /// The state of its best port.
    pub port_state: Option<PortState>,
    /// The PCI vendor ID.
    pub vendor: u16,
    /// The PCI device ID.
    pub device: u16,
    /// Its NUMA node; always one with CPUs.
    pub numa: Option<NumaNode>,
    /// Its PCIe link at current speed and width.
    pub current_link: Option<PcieLink>,
    /// The fastest link that it supports.
    pub max_link: Option<PcieLink>,
    /// The ACS mode of the ports above it.
    pub acs: Option<Acs>,
}

/// An NVMe controller. It is not part of the shape, since volumes come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvme {
    /// Its PCI address.
    pub address: PciAddress,
    /// `NVME0`, `NVME1`, …, in address order.
    pub name: String,
    /// The kernel's name, `nvme0`.
    pub kernel_name: Option<String>,
    /// Its NUMA node; always one with CPUs.
    pub numa: Option<NumaNode>,
}

impl Nic {
    /// Returns false if none of its ports has a link.
    pub fn has_link(&self) -> bool {
        self.port_state != Some(PortState::Down)
    }

    /// The kernel's name: its RDMA device, or else its first interface.
    pub fn kernel_name(&self) -> Option<&String> {
        self.rdma_device.as_ref().or_else(|| self.netdevs.first())
    }
}

/// Names by address.
pub(crate) type Identities = BTreeMap<PciAddress, DeviceIdentity>;

pub(crate) fn gpus(graph: &Graph, identities: &Identities) -> Vec<Gpu> {
    graph
        .endpoints_of(Role::Gpu)
        .enumerate()
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

/// The NICs. Their roles depend on the whole graph and are set later.
pub(crate) fn nics(
    graph: &Graph,
    identities: &Identities,
    acs: &BTreeMap<PciAddress, Acs>,
) -> Vec<Nic> {
    graph
        .endpoints_of(Role::Nic)
        .enumerate()
        .map(|(index, (address, vertex))| {
            let identity = identities.get(&address).cloned().unwrap_or_default();
            let (vendor, device) = vertex.id.unwrap_or_default();
            Nic {
                address,
                name: format!("NIC{index}"),
                rdma_device: identity.rdma_device,
                netdevs: identity.netdevs,
                link_layer: vertex.link_layer,
                role: NicRole::Compute,
                role_reason: String::new(),
                rate_megabits: None,
                port_state: None,
                vendor,
                device,
                numa: vertex.numa,
                current_link: vertex.current_link,
                max_link: vertex.max_link,
                acs: acs.get(&address).copied(),
            }
        })
        .collect()
}

pub(crate) fn nvmes(graph: &Graph, identities: &Identities) -> Vec<Nvme> {
    graph
        .endpoints_of(Role::Nvme)
        .enumerate()
        .map(|(index, (address, vertex))| Nvme {
            address,
            name: format!("NVME{index}"),
            kernel_name: identities.get(&address).and_then(|identity| identity.nvme.clone()),
            numa: vertex.numa,
        })
        .collect()
}
