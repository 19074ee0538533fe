//! The facts of one machine as its kernel reports them, without interpretation.
//!
//! A snapshot is a versioned file format, so that facts from one machine can be replayed on
//! another. No value is derived; `-1` and `Unknown` are `None`.

use serde::{Deserialize, Serialize};

use crate::text::words;
use crate::vendor::MELLANOX;
use crate::{Anomaly, CpuSet, NumaNode, PciAddress, PcieLink, PcieRoot, SubnetPrefix};

/// Version of the snapshot's format that this crate writes.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Everything that was read; each list is sorted.
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
    /// GPUs as their drivers report them, by address.
    pub gpus: Vec<GpuFacts>,
    /// XGMI links between AMD's GPUs, each once, by address.
    #[serde(default)]
    pub xgmi: Vec<XgmiLink>,
    /// NVLinks between two GPUs, each pair once, by address. Only listings have them: the kernel shows none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlinks: Vec<NvLinkFacts>,
    /// Whether the NVIDIA driver gives NICs access to GPU memory; `None` without the driver.
    #[serde(default)]
    pub nvidia_peer_memory: Option<bool>,
    /// RDMA devices, by name.
    pub rdma: Vec<RdmaDevice>,
    /// Network interfaces in the host's namespace, by name.
    pub netdevs: Vec<Netdev>,
    /// NVMe controllers, by name.
    #[serde(default)]
    pub nvme: Vec<NvmeController>,
    /// The topology file on the machine for NCCL.
    #[serde(default)]
    pub nccl_file: Option<NcclFile>,
    /// Facts that could not be read or interpreted.
    pub anomalies: Vec<Anomaly>,
}

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PciFunction {
    /// Its PCI address.
    pub address: PciAddress,
    /// Its directory relative to the sysfs mount, `devices/pci0000:15/0000:15:01.0`.
    pub path: String,
    /// Its root bus.
    pub root: Option<PcieRoot>,
    /// The bridges between the root bus and the function, starting at the root.
    pub bridges: Vec<PciAddress>,
    /// Class, subclass and interface, 24 bits.
    pub class: u32,
    /// The vendor ID.
    pub vendor: u16,
    /// The device ID.
    pub device: u16,
    /// The subsystem vendor ID.
    pub subsystem_vendor: Option<u16>,
    /// The subsystem device ID.
    pub subsystem_device: Option<u16>,
    /// The name of the bound driver.
    pub driver: Option<String>,
    /// The NUMA node as firmware and kernel report it.
    pub numa_node: Option<NumaNode>,
    /// The CPUs that the kernel calls local.
    pub local_cpus: Option<CpuSet>,
    /// For a virtual function: its physical function.
    pub physical_function: Option<PciAddress>,
    /// For a physical function: the maximum number of virtual functions.
    pub sriov_total_vfs: Option<u16>,
    /// For a physical function: the current number of virtual functions.
    pub sriov_num_vfs: Option<u16>,
    /// The IOMMU group.
    pub iommu_group: Option<u32>,
    /// How the IOMMU treats the group.
    #[serde(default)]
    pub iommu_mode: Option<IommuMode>,
    /// For a bridge above GPUs or NICs: its access control, if readable.
    #[serde(default)]
    pub acs: Option<AcsControl>,
    /// For a NIC: whether it requests address translations from the IOMMU, if readable.
    #[serde(default)]
    pub ats_enabled: Option<bool>,
    /// Keyword `V3` of the vital product data, which is equal on all functions of an adapter. Read
    /// only if an adapter has a separate data path.
    #[serde(default)]
    pub vpd_v3: Option<String>,
    /// True if the vital product data say that the function manages NVLink switches (`SW_MNG`). Read
    /// only of InfiniBand adapters with several functions or few lanes.
    #[serde(default)]
    pub manages_switches: bool,
    /// The link at its current speed.
    pub current_link: Option<PcieLink>,
    /// The fastest link that the function supports.
    pub max_link: Option<PcieLink>,
}

/// How an IOMMU treats the accesses of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IommuMode {
    /// Passes them unchanged (`identity`).
    PassThrough,
    /// Translates them (`DMA`, `DMA-FQ`).
    Translated,
}

/// The control register of a port's Access Control Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AcsControl(pub u16);

impl AcsControl {
    /// Returns true if peer requests or completions are redirected upstream (`PCI_ACS_RR`,
    /// `PCI_ACS_CR`).
    pub fn redirects(self) -> bool {
        self.0 & 0b1100 != 0
    }

    /// Returns true if requests with translated addresses go directly to the peer (`PCI_ACS_DT`).
    pub fn direct_translated(self) -> bool {
        self.0 & 0b100_0000 != 0
    }
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaNodeFacts {
    /// Its number.
    pub node: NumaNode,
    /// Its CPUs; empty on a memory-only node.
    pub cpus: CpuSet,
    /// Its row of the SLIT, over the online nodes in ascending order.
    pub distances: Vec<u32>,
    /// Its memory in bytes, without memory reserved by firmware and kernel.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// A CPU socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SocketFacts {
    /// Its number, `physical_package_id`.
    pub socket: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// A GPU as its own driver reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuFacts {
    /// Its PCI address.
    pub address: PciAddress,
    /// Its UUID, `GPU-ad11da28-…`.
    pub uuid: Option<String>,
    /// Its product name.
    pub model: Option<String>,
    /// Its DRM device, `card1`.
    #[serde(default)]
    pub drm_card: Option<String>,
}

/// The NVLinks between two GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NvLinkFacts {
    /// The GPU with the lower address.
    pub a: PciAddress,
    /// The other GPU.
    pub b: PciAddress,
    /// The number of links.
    pub links: u32,
}

/// A connection of two GPUs by AMD's XGMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XgmiLink {
    /// The GPU with the lower address.
    pub a: PciAddress,
    /// The other GPU.
    pub b: PciAddress,
    /// The number of consecutive links, if the driver's weight shows it.
    pub hops: Option<u32>,
    /// The bandwidth in one direction, in MB/s, if the driver shows it.
    #[serde(default)]
    pub bandwidth: Option<u32>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RdmaDevice {
    /// The kernel's name, `mlx5_0`.
    pub name: String,
    /// The PCI function behind it; `None` for a software device.
    pub pci: Option<PciAddress>,
    /// The scalable function that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The node GUID. Zeros mean that it is not set, as on a new virtual function.
    pub node_guid: Option<String>,
    /// The GUID of the whole adapter, equal on all its functions.
    pub sys_image_guid: Option<String>,
    /// Its ports, by number.
    pub ports: Vec<RdmaPort>,
    /// Its verbs devices, `uverbs0`.
    pub uverbs: Vec<String>,
    /// Its management datagram devices, `umad0`.
    pub umad: Vec<String>,
    /// Its subnet manager devices, `issm0`.
    pub issm: Vec<String>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RdmaPort {
    /// Its number, from 1.
    pub number: u32,
    /// The logical state.
    pub state: Option<PortState>,
    /// The rate in megabits per second.
    pub rate_megabits: Option<u32>,
    /// The link layer.
    pub link_layer: Option<LinkLayer>,
    /// Its InfiniBand subnet, if the prefix distinguishes subnets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<SubnetPrefix>,
}

/// The logical state of a port (`ib_port_state_to_str`).
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

// As `ibstat` spells them.
words! {
    PortState, ParsePortStateError("port state"):
    Down = "Down", Init = "Initializing", Armed = "Armed", Active = "Active",
    ActiveDefer = "ActiveDefer"
}

/// The link layer of an RDMA port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE, iWARP.
    Ethernet,
}

words! {
    LinkLayer, ParseLinkLayerError("link layer"):
    InfiniBand = "infiniband", Ethernet = "ethernet"
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Netdev {
    /// The kernel's name.
    pub name: String,
    /// The PCI function behind it; `None` for a virtual interface.
    pub pci: Option<PciAddress>,
    /// The part of the function that it represents, if not the whole: a scalable function
    /// (`mlx5_core.sf.4`), or the port of a virtual function (`pf0vf1`, a switchdev representor).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

impl Netdev {
    /// Whether it is that of a scalable function, which is a NIC of its own.
    pub fn is_of_scalable_function(&self) -> bool {
        self.part.as_deref().and_then(scalable_function).is_some()
    }
}

/// The scalable function in a device's path, `mlx5_core.sf.4`: an auxiliary device of the PCI function
/// (`Documentation/networking/devlink/mlx5.rst`).
pub fn scalable_function(place: &str) -> Option<&str> {
    place.split('/').rfind(|name| name.contains(".sf."))
}

/// An NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NvmeController {
    /// The kernel's name, `nvme0`.
    pub name: String,
    /// The PCI function behind it; `None` for a controller over a network.
    pub pci: Option<PciAddress>,
}

/// A topology file for NCCL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NcclFile {
    /// Its path below the host's root, without a leading slash.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// A sort key for names with numbers by value.
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

/// The device ID of the function that moves data for the network functions of a `ConnectX`-8 or
/// later (`drivers/infiniband/hw/mlx5/data_direct.c`).
const DATA_DIRECT: u16 = 0x2100;

impl PciFunction {
    /// Returns true if this is the data path of an adapter whose network functions are elsewhere.
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

    /// The fastest link that the function can have in its slot: what both ends support. An end
    /// without facts is ignored.
    pub fn attainable_link(&self, function: &PciFunction) -> Option<PcieLink> {
        let own = function.max_link?;
        let port = function.bridges.last().and_then(|bridge| self.function(*bridge));
        Some(port.and_then(|port| port.max_link).map_or(own, |port| own.common(port)))
    }

    /// Returns true if the link runs slower or narrower than both ends support.
    pub fn is_link_degraded(&self, function: &PciFunction) -> Option<bool> {
        let (now, best) = (function.current_link?, self.attainable_link(function)?);
        Some(now.megatransfers < best.megatransfers || now.width < best.width)
    }

    /// The RDMA devices of this function: its own first, `mlx5_2` before `mlx5_10`. One without verbs is
    /// last: adapters for XDR have a second one, `smi1`, by which subnet managers reach their ports
    /// (Mellanox/rdmamap#17).
    pub fn rdma_of(&self, address: PciAddress) -> impl Iterator<Item = &RdmaDevice> {
        let of_function = self.rdma.iter().filter(|device| device.pci == Some(address));
        let mut devices: Vec<_> = of_function.collect();
        devices.sort_by_cached_key(|device| {
            (device.part.is_some(), device.uverbs.is_empty(), natural(&device.name))
        });
        devices.into_iter()
    }

    /// The network interfaces of this function: its own first, `eth2` before `eth10`.
    pub fn netdevs_of(&self, address: PciAddress) -> impl Iterator<Item = &Netdev> {
        let of_function = self.netdevs.iter().filter(|netdev| netdev.pci == Some(address));
        let mut netdevs: Vec<_> = of_function.collect();
        netdevs.sort_by_cached_key(|netdev| (netdev.part.is_some(), natural(&netdev.name)));
        netdevs.into_iter()
    }

    /// The RDMA device that represents this function: its own, before those of its parts.
    pub fn rdma_device(&self, address: PciAddress) -> Option<&RdmaDevice> {
        self.rdma_of(address).next()
    }

    /// The network interface that represents this function, chosen in the same way.
    pub fn netdev(&self, address: PciAddress) -> Option<&Netdev> {
        self.netdevs_of(address).next()
    }

    /// The NVMe controller of this function.
    pub fn nvme_of(&self, address: PciAddress) -> Option<&NvmeController> {
        self.nvme.iter().find(|controller| controller.pci == Some(address))
    }
}
