//! The edges of the graph, and the distance between their ends.

use std::ops::Add;

use crate::{Evidence, PathKind, PcieLink};

use super::vertex::Role;

/// A connection between two vertices. The lower end comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A PCIe link.
    Pcie(Link),
    /// A part of its parent: two ports of a switch, a root port or integrated device on its host
    /// bridge, a host bridge on its NUMA node, a NUMA node on its socket.
    Attachment,
    /// From a NIC to the function that moves its data.
    DataPath,
    /// Between two NUMA nodes, in both directions, in the SLIT's units: 10 is a node's distance to
    /// itself.
    Slit { there: Option<u32>, back: Option<u32> },
    /// From a GPU to the NUMA node of a CPU in the same package (NVLink-C2C), with the bandwidth in
    /// one direction in MB/s, if a source gives it.
    ChipToChip { bandwidth: Option<u32> },
    /// Between two GPUs, other than PCIe.
    Fabric { fabric: Fabric, evidence: Evidence },
}

/// A PCIe link: what both ends support, and what it runs at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) possible: Option<PcieLink>,
    pub(crate) current: Option<PcieLink>,
}

/// A connection of GPUs other than PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fabric {
    /// This number of parallel NVLinks.
    NvLink { links: u32 },
    /// XGMI over this number of consecutive links, with the bandwidth in one direction in MB/s.
    Xgmi { hops: Option<u32>, bandwidth: Option<u32> },
}

/// The distance between two vertices: the sum over the edges between them. Distances compare by
/// crossings of sockets and NUMA nodes, then root buses, then PCIe links, then edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Distance {
    /// The number of crossings between sockets.
    between_sockets: u32,
    /// The number of crossings between NUMA nodes.
    between_numa_nodes: u32,
    /// The distance of these crossings by the SLIT.
    slit: u32,
    /// The number of steps into or out of a NUMA node.
    numa: u32,
    /// The number of steps onto or off a root bus.
    root_buses: u32,
    /// The number of PCIe links below root buses.
    links: u32,
    edges: u32,
    nvlinks: u32,
    xgmi: u32,
}

/// Two links have one switch between them, or one port that both share.
const LINKS_OF_ONE_SWITCH: u32 = 2;

impl Edge {
    /// The distance that this edge adds; `above` is the role of its second end. The sockets of NUMA
    /// nodes are not known here; see [`Distance::between_sockets`].
    pub(crate) fn distance(&self, above: Role) -> Distance {
        let one = Distance { edges: 1, ..Distance::default() };
        match (self, above) {
            (Self::Slit { there, back }, _) => {
                let slit = there.or(*back).unwrap_or_default();
                Distance { between_numa_nodes: 1, slit, ..one }
            }
            (Self::ChipToChip { .. }, _) | (Self::Pcie(_) | Self::Attachment, Role::NumaNode) => {
                Distance { numa: 1, ..one }
            }
            (Self::Pcie(_) | Self::Attachment, Role::HostBridge) => {
                Distance { root_buses: 1, ..one }
            }
            (Self::Pcie(_), _) => Distance { links: 1, ..one },
            (Self::Attachment | Self::DataPath, _) => one,
            (Self::Fabric { fabric: Fabric::NvLink { links }, .. }, _) => {
                Distance { nvlinks: *links, ..one }
            }
            (Self::Fabric { fabric: Fabric::Xgmi { .. }, .. }, _) => Distance { xgmi: 1, ..one },
        }
    }
}

impl Fabric {
    pub(crate) fn path(self) -> PathKind {
        match self {
            Self::NvLink { links } => PathKind::NvLink(links),
            Self::Xgmi { .. } => PathKind::Xgmi,
        }
    }
}

impl Distance {
    /// The same distance between two sockets.
    pub(crate) fn between_sockets(self) -> Self {
        Self { between_sockets: 1, ..self }
    }

    /// Returns true if the path stays within one socket, or if sockets are unknown.
    pub(crate) fn is_in_socket(self) -> bool {
        self.between_sockets == 0
    }

    /// The length of the path within its kind: by the SLIT, then by PCIe links.
    pub(crate) fn length(self) -> (u32, u32) {
        (self.slit, self.links)
    }

    /// The path kind for this distance.
    pub(crate) fn kind(self) -> PathKind {
        match self {
            Self { between_numa_nodes: 1.., .. } => PathKind::Sys,
            Self { numa: 1.., .. } => PathKind::Node,
            Self { root_buses: 1.., .. } => PathKind::Phb,
            Self { links, .. } if links > LINKS_OF_ONE_SWITCH => PathKind::Pxb,
            Self { xgmi: 1.., .. } => PathKind::Xgmi,
            Self { edges: 0, .. } => PathKind::Same,
            Self { links: 0, nvlinks, .. } => PathKind::NvLink(nvlinks),
            _ => PathKind::Pix,
        }
    }
}

impl Add for Distance {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            between_sockets: self.between_sockets + other.between_sockets,
            between_numa_nodes: self.between_numa_nodes + other.between_numa_nodes,
            slit: self.slit.saturating_add(other.slit),
            numa: self.numa + other.numa,
            root_buses: self.root_buses + other.root_buses,
            links: self.links + other.links,
            edges: self.edges + other.edges,
            nvlinks: self.nvlinks.saturating_add(other.nvlinks),
            xgmi: self.xgmi + other.xgmi,
        }
    }
}
