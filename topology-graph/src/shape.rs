//! The graph of one machine as values: what it is made of, without whose it is.
//!
//! Nothing here names a node, a GUID, a UUID or a kernel's device name, so equal
//! hardware gives equal shapes. Distances are the graph's business.

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;
use crate::{CpuSet, Evidence, LinkLayer, NumaNode, PathKind, PciAddress, PcieLink, PcieRoot};

/// Hash of a machine's shape, 16 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeHash(pub(crate) u64);

/// A text that is no hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no shape (16 lower-case hexadecimal digits)")]
pub struct ParseShapeHashError(String);

/// All vertices by place, and what joins them beside their parents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) numa: Vec<NumaVertex>,
    pub(crate) sockets: Vec<SocketVertex>,
    pub(crate) gpu_links: Vec<GpuLink>,
}

/// Where a vertex is: a root bus, or a function on a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Root(PcieRoot),
    Function(PciAddress),
}

/// One vertex of the PCI tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vertex {
    pub(crate) place: Place,
    pub(crate) parent: Option<Place>,
    pub(crate) role: Role,
    pub(crate) class: Option<u32>,
    /// Vendor and device id.
    pub(crate) id: Option<(u16, u16)>,
    pub(crate) numa: Option<NumaNode>,
    pub(crate) link_layer: Option<LinkLayer>,
    pub(crate) rdma: bool,
    pub(crate) max_link: Option<PcieLink>,
    /// Of a NIC: the function that moves its data, known by vital product data.
    pub(crate) data_path: Option<Place>,
    /// Of place and parent.
    pub(crate) evidence: Evidence,
    pub(crate) numa_evidence: Evidence,
}

/// What a vertex is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// A host bridge with its root bus.
    HostBridge,
    /// One port of a switch, a root port, or a bridge.
    Bridge,
    /// A whole switch, as overlays tell it.
    Switch,
    Gpu,
    Nic,
    /// The function that moves the data of a NIC (Data Direct).
    DataPath,
    /// An NVMe controller; never in a shape, since volumes come and go.
    Nvme,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumaVertex {
    pub(crate) node: NumaNode,
    pub(crate) cpus: CpuSet,
    pub(crate) distances: Vec<u32>,
    pub(crate) socket: Option<u32>,
    pub(crate) evidence: Evidence,
}

/// One CPU socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketVertex {
    pub(crate) socket: u32,
    pub(crate) cpus: CpuSet,
    pub(crate) evidence: Evidence,
}

/// The way between two GPUs beside PCIe, the lower address first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuLink {
    pub(crate) gpus: (PciAddress, PciAddress),
    pub(crate) fabric: Fabric,
    pub(crate) evidence: Evidence,
}

/// What joins GPUs beside PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fabric {
    /// That many NVLinks side by side.
    NvLink { links: u32 },
    /// XGMI, over that many links one after the other.
    Xgmi { hops: Option<u32> },
}

impl Fabric {
    pub(crate) fn path(self) -> PathKind {
        match self {
            Self::NvLink { links } => PathKind::NvLink(links),
            Self::Xgmi { .. } => PathKind::Xgmi,
        }
    }
}

impl Shape {
    /// GPUs and NICs by address.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (PciAddress, &Vertex)> {
        self.vertices.iter().filter(|vertex| vertex.role.is_device()).filter_map(|vertex| {
            match vertex.place {
                Place::Function(address) => Some((address, vertex)),
                Place::Root(_) => None,
            }
        })
    }
}

impl Vertex {
    /// A vertex of which only its place is known.
    pub(crate) fn new(place: Place, role: Role) -> Self {
        Self {
            place,
            parent: None,
            role,
            class: None,
            id: None,
            numa: None,
            link_layer: None,
            rdma: false,
            max_link: None,
            data_path: None,
            evidence: Evidence::Sysfs,
            numa_evidence: Evidence::Sysfs,
        }
    }

    /// The address of a GPU, NIC or NVMe controller.
    pub(crate) fn endpoint(&self) -> Option<PciAddress> {
        match self.place {
            Place::Function(address) if self.role.is_endpoint() => Some(address),
            Place::Function(_) | Place::Root(_) => None,
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
}

impl fmt::Display for ShapeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ShapeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ShapeHash {
    type Err = ParseShapeHashError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16)
            .map(Self)
            .ok()
            .filter(|hash| hash.to_string() == text)
            .ok_or_else(|| ParseShapeHashError(text.to_owned()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => root.fmt(f),
            Self::Function(address) => address.fmt(f),
        }
    }
}

serde_as_text!(ShapeHash);
