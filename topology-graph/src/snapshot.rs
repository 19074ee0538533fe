//! The facts of one machine as its kernel tells them, before any judgement.
//!
//! A file format on purpose, with a version: what was read on one machine can be
//! replayed on another. No value is derived here; `-1` and `Unknown` are `None`.

use serde::{Deserialize, Serialize};

use crate::{Anomaly, CpuSet, NumaNode, PciAddress, PcieLink, PcieRoot, SubnetPrefix};

/// Version of the snapshot's format that this crate writes.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Everything that was read, each list sorted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// [`SNAPSHOT_VERSION`] of the writer.
    pub version: u32,
    /// PCI functions by address.
    pub pci: Vec<PciFunction>,
    /// NUMA nodes by number.
    pub numa_nodes: Vec<NumaNodeFacts>,
    /// CPU sockets by number.
    #[serde(default)]
    pub sockets: Vec<SocketFacts>,
    /// What GPU drivers tell of their GPUs, by address.
    pub gpus: Vec<GpuFacts>,
    /// XGMI links between AMD's GPUs, each once, by their addresses.
    #[serde(default)]
    pub xgmi: Vec<XgmiLink>,
    /// Whether the NVIDIA driver lets NICs at GPU memory; nothing without the driver.
    #[serde(default)]
    pub nvidia_peer_memory: Option<bool>,
    /// RDMA devices by name.
    pub rdma: Vec<RdmaDevice>,
    /// Network interfaces of the host's namespace by name.
    pub netdevs: Vec<Netdev>,
    /// NVMe controllers by name.
    #[serde(default)]
    pub nvme: Vec<NvmeController>,
    /// The topology file that is on the machine for NCCL.
    #[serde(default)]
    pub nccl_file: Option<NcclFile>,
    /// What could not be read or understood.
    pub anomalies: Vec<Anomaly>,
}

/// One PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PciFunction {
    /// Where it is.
    pub address: PciAddress,
    /// Its directory below the sysfs mount, `devices/pci0000:15/0000:15:01.0`.
    pub path: String,
    /// The root bus that it hangs off.
    pub root: Option<PcieRoot>,
    /// The bridges between the root bus and it, from the root.
    pub bridges: Vec<PciAddress>,
    /// Class, subclass and interface, 24 bits.
    pub class: u32,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: Option<u16>,
    /// Subsystem device id.
    pub subsystem_device: Option<u16>,
    /// Name of the bound driver.
    pub driver: Option<String>,
    /// NUMA node as firmware and kernel tell it.
    pub numa_node: Option<NumaNode>,
    /// CPUs that the kernel calls local.
    pub local_cpus: Option<CpuSet>,
    /// Of a virtual function: its physical function.
    pub physical_function: Option<PciAddress>,
    /// Of a physical function: how many virtual functions it can have.
    pub sriov_total_vfs: Option<u16>,
    /// Of a physical function: how many virtual functions it has now.
    pub sriov_num_vfs: Option<u16>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// What the IOMMU does with the group.
    #[serde(default)]
    pub iommu_mode: Option<IommuMode>,
    /// Of a bridge above GPUs or NICs: its access control, where it may be read.
    #[serde(default)]
    pub acs: Option<AcsControl>,
    /// Of a NIC: whether it asks the IOMMU for translations, where it may be read.
    #[serde(default)]
    pub ats_enabled: Option<bool>,
    /// Keyword `V3` of the vital product data, which joins the functions of one
    /// adapter; read only where an adapter has a data path of its own.
    #[serde(default)]
    pub vpd_v3: Option<String>,
    /// The link as it runs now.
    pub current_link: Option<PcieLink>,
    /// The link that the function could run.
    pub max_link: Option<PcieLink>,
}

/// What an IOMMU does with the accesses of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IommuMode {
    /// Lets them pass (`identity`).
    PassThrough,
    /// Translates them (`DMA`, `DMA-FQ`).
    Translated,
}

/// The control register of a port's Access Control Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AcsControl(pub u16);

impl AcsControl {
    /// `PCI_ACS_RR` and `PCI_ACS_CR`: peer requests or completions go upstream.
    pub fn redirects(self) -> bool {
        self.0 & 0b1100 != 0
    }

    /// `PCI_ACS_DT`: requests with translated addresses go straight to the peer.
    pub fn direct_translated(self) -> bool {
        self.0 & 0b100_0000 != 0
    }
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaNodeFacts {
    /// Its number.
    pub node: NumaNode,
    /// Its CPUs; none on a memory-only node.
    pub cpus: CpuSet,
    /// Its row of the SLIT, over the online nodes in ascending order.
    pub distances: Vec<u32>,
    /// Its memory in bytes, without what firmware and kernel keep for themselves.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// One CPU socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SocketFacts {
    /// Its number, `physical_package_id`.
    pub socket: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// What a GPU's own driver tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuFacts {
    /// Where the GPU is.
    pub address: PciAddress,
    /// Its unique name, `GPU-ad11da28-…`.
    pub uuid: Option<String>,
    /// The product's name.
    pub model: Option<String>,
    /// Its device of the direct rendering manager, `card1`.
    #[serde(default)]
    pub drm_card: Option<String>,
}

/// The way over AMD's XGMI between two GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XgmiLink {
    /// The GPU of the lower address.
    pub a: PciAddress,
    /// The other GPU.
    pub b: PciAddress,
    /// Links one after the other, where the driver's weight tells it.
    pub hops: Option<u32>,
    /// What it carries in one direction, in MB/s, where the driver tells it.
    #[serde(default)]
    pub bandwidth: Option<u32>,
}

/// One RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RdmaDevice {
    /// Kernel name, `mlx5_0`.
    pub name: String,
    /// The PCI function behind it; none for a software device.
    pub pci: Option<PciAddress>,
    /// The scalable function of the PCI function that it is, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// GUID of the node.
    pub node_guid: Option<String>,
    /// GUID of the whole adapter, the same on all of its functions.
    pub sys_image_guid: Option<String>,
    /// Its ports by number.
    pub ports: Vec<RdmaPort>,
    /// Verbs device, `uverbs0`.
    pub uverbs: Vec<String>,
    /// Management datagram devices, `umad0`.
    pub umad: Vec<String>,
    /// Subnet manager devices, `issm0`.
    pub issm: Vec<String>,
}

/// One port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RdmaPort {
    /// Its number, from 1.
    pub number: u32,
    /// Logical state.
    pub state: Option<PortState>,
    /// Rate in megabits per second.
    pub rate_megabits: Option<u32>,
    /// Link layer.
    pub link_layer: Option<LinkLayer>,
    /// The InfiniBand subnet that it is on, where its prefix tells one from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<SubnetPrefix>,
}

/// Logical state of a port (`ib_port_state_to_str`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PortState {
    /// `1: DOWN`.
    Down,
    /// `2: INIT`.
    Init,
    /// `3: ARMED`.
    Armed,
    /// `4: ACTIVE`.
    Active,
    /// `5: ACTIVE_DEFER`.
    ActiveDefer,
}

/// What runs below the verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE, iWARP.
    Ethernet,
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Netdev {
    /// Kernel name.
    pub name: String,
    /// The PCI function behind it; none for a virtual interface.
    pub pci: Option<PciAddress>,
    /// What of the function it stands for, where that is not the function itself: a
    /// scalable function (`mlx5_core.sf.4`), or the port of a virtual function
    /// (`pf0vf1`, a switchdev representor).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// One NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NvmeController {
    /// Kernel name, `nvme0`.
    pub name: String,
    /// The PCI function behind it; none for one over a network.
    pub pci: Option<PciAddress>,
}

/// A topology file for NCCL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NcclFile {
    /// Where it is below the host's root, without a slash in front.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// A name as people order it: its numbers by value.
fn natural(name: &str) -> Vec<(&str, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let digits = &rest[text..];
        let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        parts.push((&rest[..text], digits[..end].parse().unwrap_or(0)));
        rest = &digits[end..];
    }
    parts
}

/// PCI vendor id of Mellanox, now NVIDIA's networking.
pub(crate) const MELLANOX: u16 = 0x15b3;
/// Device id of the function by which a `ConnectX`-8 and later moves data past its
/// network functions (`drivers/infiniband/hw/mlx5/data_direct.c`).
const DATA_DIRECT: u16 = 0x2100;

impl PciFunction {
    /// Whether it is the data path of an adapter whose network functions are elsewhere.
    pub fn is_data_direct(&self) -> bool {
        self.vendor == MELLANOX && self.device == DATA_DIRECT
    }
}

impl Snapshot {
    /// The function at this address.
    pub fn function(&self, address: PciAddress) -> Option<&PciFunction> {
        let index = self.pci.binary_search_by_key(&address, |function| function.address).ok()?;
        self.pci.get(index)
    }

    /// The link that a function can have where it is: what both ends can. Of an
    /// end that tells nothing nothing is asked.
    pub fn attainable_link(&self, function: &PciFunction) -> Option<PcieLink> {
        let own = function.max_link?;
        let port = function.bridges.last().and_then(|bridge| self.function(*bridge));
        Some(port.and_then(|port| port.max_link).map_or(own, |port| own.common(port)))
    }

    /// Whether a function's link runs slower or narrower than both ends could.
    pub fn is_link_degraded(&self, function: &PciFunction) -> Option<bool> {
        let (now, best) = (function.current_link?, self.attainable_link(function)?);
        Some(now.megatransfers < best.megatransfers || now.width < best.width)
    }

    /// The RDMA devices of this function, its own first, `mlx5_2` before `mlx5_10`.
    pub fn rdma_of(&self, address: PciAddress) -> impl Iterator<Item = &RdmaDevice> {
        let of_function = self.rdma.iter().filter(|device| device.pci == Some(address));
        let mut devices: Vec<_> = of_function.collect();
        devices.sort_by_cached_key(|device| (device.part.is_some(), natural(&device.name)));
        devices.into_iter()
    }

    /// The network interfaces of this function, its own first, `eth2` before `eth10`.
    pub fn netdevs_of(&self, address: PciAddress) -> impl Iterator<Item = &Netdev> {
        let of_function = self.netdevs.iter().filter(|netdev| netdev.pci == Some(address));
        let mut netdevs: Vec<_> = of_function.collect();
        netdevs.sort_by_cached_key(|netdev| (netdev.part.is_some(), natural(&netdev.name)));
        netdevs.into_iter()
    }

    /// The RDMA device that stands for this function: its own, before those of its parts.
    pub fn rdma_device(&self, address: PciAddress) -> Option<&RdmaDevice> {
        self.rdma_of(address).next()
    }

    /// The network interface that stands for this function, likewise.
    pub fn netdev(&self, address: PciAddress) -> Option<&Netdev> {
        self.netdevs_of(address).next()
    }

    /// The NVMe controller of this function.
    pub fn nvme_of(&self, address: PciAddress) -> Option<&NvmeController> {
        self.nvme.iter().find(|controller| controller.pci == Some(address))
    }
}
