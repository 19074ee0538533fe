//! The vertices of the graph: CPU sockets, NUMA nodes, and the PCI tree from host
//! bridges down to GPUs, NICs and disks.

use std::fmt;

use crate::{CpuSet, Evidence, LinkLayer, NumaNode, PciAddress, PcieLink, PcieRoot};

/// Where a vertex is, which no two of a machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A CPU socket by its number.
    Socket(u32),
    /// A NUMA node by its number.
    Numa(NumaNode),
    /// A root bus.
    Root(PcieRoot),
    /// A PCI function.
    Function(PciAddress),
}

/// What a vertex is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A CPU socket.
    Socket,
    /// A NUMA node.
    NumaNode,
    /// A host bridge with its root bus.
    HostBridge,
    /// A port of the root complex: a bridge with nothing above but a host bridge.
    RootPort,
    /// A port of a switch: a bridge below a root port or below another switch's port.
    SwitchPort,
    /// A whole switch, whose ports nobody tells of (overlays).
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

/// One vertex: what is told of it, and who tells it. What joins it to others is on
/// the edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vertex {
    pub(crate) place: Place,
    pub(crate) role: Role,
    /// Of a socket or NUMA node; empty on a memory-only node.
    pub(crate) cpus: CpuSet,
    /// PCI class, 24 bits.
    pub(crate) class: Option<u32>,
    /// Vendor and device id.
    pub(crate) id: Option<(u16, u16)>,
    /// The NUMA node that a GPU, NIC or disk is told to be on.
    pub(crate) numa: Option<NumaNode>,
    pub(crate) link_layer: Option<LinkLayer>,
    pub(crate) rdma: bool,
    /// The link that the function itself could run.
    pub(crate) max_link: Option<PcieLink>,
    /// The link above the function as it runs. Unknown above GPUs: they slow it down
    /// by themselves when they are idle.
    pub(crate) current_link: Option<PcieLink>,
    /// Of a virtual function whose physical function is on the machine too: that one.
    pub(crate) physical_function: Option<Place>,
    /// Of where it is.
    pub(crate) evidence: Evidence,
    pub(crate) numa_evidence: Evidence,
    /// Whether equal hardware has it: volumes, and what is above only them, come and go.
    pub(crate) in_shape: bool,
}

impl Vertex {
    /// A vertex of which only its place is known.
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

    /// The address of a GPU, NIC or NVMe controller.
    pub(crate) fn endpoint(&self) -> Option<PciAddress> {
        self.place.address().filter(|_| self.role.is_endpoint())
    }
}

impl Place {
    /// The address of a PCI function.
    pub fn address(self) -> Option<PciAddress> {
        match self {
            Self::Function(address) => Some(address),
            Self::Socket(_) | Self::Numa(_) | Self::Root(_) => None,
        }
    }
}

impl Role {
    /// What distances and cells are about.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Gpu | Self::Nic)
    }

    /// And what else has a distance.
    pub(crate) fn is_endpoint(self) -> bool {
        self.is_device() || self == Self::Nvme
    }

    /// Root ports and ports of switches.
    pub(crate) fn is_port(self) -> bool {
        matches!(self, Self::RootPort | Self::SwitchPort)
    }

    /// What is on the PCI tree, which sockets and NUMA nodes are not.
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

/// For a person: `root port`, `GPU`.
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
