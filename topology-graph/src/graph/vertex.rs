//! The vertices of the graph: CPU sockets, NUMA nodes, and the PCI tree from host bridges down to
//! GPUs, NICs and disks.

use std::fmt;

use crate::{CpuSet, Evidence, LinkLayer, NumaNode, PciAddress, PcieLink, PcieRoot};

/// The place of a vertex, unique on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A CPU socket, by number.
    Socket(u32),
    /// A NUMA node, by number.
    Numa(NumaNode),
    /// A root bus.
    Root(PcieRoot),
    /// A PCI function.
    Function(PciAddress),
}

/// The role of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A CPU socket.
    Socket,
    /// A NUMA node.
    NumaNode,
    /// A host bridge with its root bus.
    HostBridge,
    /// A port of the root complex: a bridge directly below a host bridge.
    RootPort,
    /// A port of a switch: a bridge below a root port or another switch port.
    SwitchPort,
    /// A whole switch whose ports are unknown (from overlays).
    Switch,
    /// A GPU.
    Gpu,
    /// A network controller.
    Nic,
    /// The function that moves the data of a NIC (Data Direct).
    DataPath,
    /// An NVMe controller.
    Nvme,
}

/// A vertex: its facts and their sources. Its connections are the edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vertex {
    pub(crate) place: Place,
    pub(crate) role: Role,
    /// For a socket or NUMA node; empty on a memory-only node.
    pub(crate) cpus: CpuSet,
    /// PCI class, 24 bits.
    pub(crate) class: Option<u32>,
    /// The vendor and device ID.
    pub(crate) id: Option<(u16, u16)>,
    /// The known NUMA node of a GPU, NIC or disk.
    pub(crate) numa: Option<NumaNode>,
    pub(crate) link_layer: Option<LinkLayer>,
    pub(crate) rdma: bool,
    /// The fastest link that the function supports.
    pub(crate) max_link: Option<PcieLink>,
    /// The link above the function at its current speed. Unknown above GPUs, since an idle GPU
    /// slows it down.
    pub(crate) current_link: Option<PcieLink>,
    /// For a virtual function: its physical function, if that is on the machine too.
    pub(crate) physical_function: Option<Place>,
    /// The source of its place.
    pub(crate) evidence: Evidence,
    pub(crate) numa_evidence: Evidence,
    /// True if equal hardware has it too. Volumes, and vertices that are only above volumes, come
    /// and go.
    pub(crate) in_shape: bool,
}

impl Vertex {
    /// Creates a vertex of which only place and role are known.
    pub(crate) fn new(place: Place, role: Role) -> Self {
        Self {
            place,
            role,
            cpus: CpuSet::default(),
            class: None,
            id: None,
            numa: None,
            link_layer: None,
            physical_function: None,
            rdma: false,
            max_link: None,
            current_link: None,
            evidence: Evidence::Sysfs,
            numa_evidence: Evidence::Sysfs,
            in_shape: true,
        }
    }

    /// The address, if it is a GPU, NIC or NVMe controller.
    pub(crate) fn endpoint(&self) -> Option<PciAddress> {
        self.place.address().filter(|_| self.role.is_endpoint())
    }
}

impl Place {
    /// The address, if it is a PCI function.
    pub fn address(self) -> Option<PciAddress> {
        match self {
            Self::Function(address) => Some(address),
            Self::Socket(_) | Self::Numa(_) | Self::Root(_) => None,
        }
    }
}

impl Role {
    /// Returns true for devices that cells and pairs are built from: GPUs and NICs.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Gpu | Self::Nic)
    }

    /// Returns true for everything that has a distance: devices and NVMe controllers.
    pub(crate) fn is_endpoint(self) -> bool {
        self.is_device() || self == Self::Nvme
    }

    /// Returns true for root ports and switch ports.
    pub(crate) fn is_port(self) -> bool {
        matches!(self, Self::RootPort | Self::SwitchPort)
    }

    /// Returns true for vertices of the PCI tree; sockets and NUMA nodes are not.
    pub(crate) fn is_pci(self) -> bool {
        !matches!(self, Self::Socket | Self::NumaNode)
    }
}

/// `socket0`, `numa0`, `pci0000:15`, `0000:15:01.0`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(socket) => write!(f, "socket{socket}"),
            Self::Numa(node) => write!(f, "numa{node}"),
            Self::Root(root) => root.fmt(f),
            Self::Function(address) => address.fmt(f),
        }
    }
}

/// The role as text for people: `root port`, `GPU`.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Socket => "CPU socket",
            Self::NumaNode => "NUMA node",
            Self::HostBridge => "host bridge",
            Self::RootPort => "root port",
            Self::SwitchPort => "switch port",
            Self::Switch => "switch",
            Self::Gpu => "GPU",
            Self::Nic => "NIC",
            Self::DataPath => "data path",
            Self::Nvme => "NVMe",
        })
    }
}
