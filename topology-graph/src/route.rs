//! The way between two devices, vertex by vertex: what it leads over, which word of
//! `nvidia-smi topo -m` it is, and where it is narrowest.

use crate::graph::{Edge, Fabric, Place, Role, Vertex};
use crate::{PathKind, PciAddress, PcieLink, Topology};

/// The best way between two devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// How far they are apart.
    pub kind: PathKind,
    /// The vertices on the way, both devices included.
    pub hops: Vec<Hop>,
}

/// One vertex on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub role: Role,
    /// What joins it to the vertex before it; nothing for the first.
    pub by: Option<Connection>,
}

/// What joins two vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// A PCIe link.
    Pcie {
        /// What both its ends can, as far as they tell.
        possible: Option<PcieLink>,
        /// What it runs. Nothing above a GPU, which slows its link down when it is idle.
        current: Option<PcieLink>,
    },
    /// One is a part of the other: ports of one switch, a root port on its host bridge,
    /// a host bridge on its NUMA node.
    Attachment,
    /// One moves the data of the other.
    DataPath,
    /// Two NUMA nodes.
    Numa {
        /// The SLIT's distance in the direction of the way; 10 is a node to itself.
        distance: Option<u32>,
    },
    /// NVLinks side by side.
    NvLink {
        /// How many.
        links: u32,
    },
    /// AMD's XGMI.
    Xgmi {
        /// Links one after the other, where the driver tells it.
        hops: Option<u32>,
        /// What they carry in one direction, in MB/s, where the driver tells it.
        bandwidth: Option<u32>,
    },
}

/// The narrowest link on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Which hop the link leads to, by its number among [`Route::hops`].
    pub hop: usize,
    /// What the link carries in one direction: as it runs, where that is known, else as
    /// it could.
    pub megabytes_per_second: u32,
}

impl Route {
    /// Where the way is narrowest, the first of several that are; nothing where no link on
    /// it is known. Links between CPUs and NVLinks are not counted: nobody tells what they
    /// carry.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let links = self.hops.iter().enumerate().filter_map(|(hop, vertex)| {
            let megabytes_per_second = vertex.by?.megabytes_per_second()?;
            Some(Bottleneck { hop, megabytes_per_second })
        });
        links.min_by_key(|link| link.megabytes_per_second)
    }
}

impl Connection {
    /// What the link carries in one direction: as it runs, else as it could.
    pub fn megabytes_per_second(self) -> Option<u32> {
        match self {
            Self::Pcie { possible, current } => {
                current.or(possible).map(PcieLink::megabytes_per_second)
            }
            Self::Xgmi { bandwidth, .. } => bandwidth,
            Self::Attachment | Self::DataPath | Self::Numa { .. } | Self::NvLink { .. } => None,
        }
    }
}

impl Topology {
    /// The best way between two devices; nothing where no way is known, or one of them
    /// is not here.
    pub fn route(&self, a: PciAddress, b: PciAddress) -> Option<Route> {
        let (kind, first, steps) = self.graph.between(a, b)?;
        let mut hops = vec![Hop { place: first.place, role: first.role, by: None }];
        for step in &steps {
            let before = hops.last().map(|hop| hop.place);
            let Vertex { place, role, .. } = *step.to;
            hops.push(Hop { place, role, by: Some(connection(step.edge, before < Some(place))) });
        }
        Some(Route { kind, hops })
    }
}

/// An edge walked from its first end to its second where that is `ahead`.
fn connection(edge: &Edge, ahead: bool) -> Connection {
    match *edge {
        Edge::Pcie(link) => Connection::Pcie { possible: link.possible, current: link.current },
        Edge::Attachment => Connection::Attachment,
        Edge::DataPath => Connection::DataPath,
        // The lower node is the first end.
        Edge::Slit { there, back } => {
            Connection::Numa { distance: if ahead { there } else { back } }
        }
        Edge::Fabric { fabric: Fabric::NvLink { links }, .. } => Connection::NvLink { links },
        Edge::Fabric { fabric: Fabric::Xgmi { hops, bandwidth }, .. } => {
            Connection::Xgmi { hops, bandwidth }
        }
    }
}
