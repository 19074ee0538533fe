//! The edges of the graph, and how far apart their ends are.

use std::ops::Add;

use crate::{Evidence, PathKind, PcieLink};

use super::vertex::Role;

/// What joins two vertices. Where one end is above the other, the lower is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A PCIe link.
    Pcie(Link),
    /// A part of what is above it: two ports of a switch, a root port or an integrated
    /// device on its host bridge, a host bridge on its NUMA node, that on its socket.
    Attachment,
    /// From a NIC to the function that moves its data.
    DataPath,
    /// Between two NUMA nodes, from the first to the second and back, in the SLIT's
    /// units: 10 is a node's distance to itself.
    Slit { there: Option<u32>, back: Option<u32> },
    /// Between two GPUs beside PCIe.
    Fabric { fabric: Fabric, evidence: Evidence },
}

/// A PCIe link: what both its ends can, and what it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) possible: Option<PcieLink>,
    pub(crate) current: Option<PcieLink>,
}

/// What joins GPUs beside PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fabric {
    /// That many NVLinks side by side.
    NvLink { links: u32 },
    /// XGMI, over that many links one after the other, which carry so much in one
    /// direction, in MB/s.
    Xgmi { hops: Option<u32>, bandwidth: Option<u32> },
}

/// How far apart two vertices are: what the edges between them add up to. Of two ways
/// the one with fewer crossings of sockets and NUMA nodes is nearer, then the one with
/// fewer root buses, then with fewer PCIe links, then with fewer edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Distance {
    /// Crossings from one NUMA node to another.
    between_numa_nodes: u32,
    /// Ways into or out of a NUMA node.
    numa: u32,
    /// Ways onto or off a root bus.
    root_buses: u32,
    /// PCIe links below root buses.
    links: u32,
    edges: u32,
    nvlinks: u32,
    xgmi: u32,
}

/// Two links have one switch between them, or the one port that both ends share.
const LINKS_OF_ONE_SWITCH: u32 = 2;

impl Edge {
    /// What this edge adds to a way; `above` is what its second end is.
    pub(crate) fn distance(&self, above: Role) -> Distance {
        let one = Distance { edges: 1, ..Distance::default() };
        match (self, above) {
            (Self::Slit { .. }, _) => Distance { between_numa_nodes: 1, ..one },
            (Self::Pcie(_) | Self::Attachment, Role::NumaNode) => Distance { numa: 1, ..one },
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
    /// The word for it.
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
            between_numa_nodes: self.between_numa_nodes + other.between_numa_nodes,
            numa: self.numa + other.numa,
            root_buses: self.root_buses + other.root_buses,
            links: self.links + other.links,
            edges: self.edges + other.edges,
            nvlinks: self.nvlinks.saturating_add(other.nvlinks),
            xgmi: self.xgmi + other.xgmi,
        }
    }
}
