//! The route between two devices, vertex by vertex, with its path kind and its narrowest link.

use crate::graph::{Edge, Fabric, Place, Role, Vertex};
use crate::{PathKind, PciAddress, PcieLink, Topology};

/// The best route between two devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The kind of path.
    pub kind: PathKind,
    /// The vertices on the route, including both devices.
    pub hops: Vec<Hop>,
}

/// A vertex on the route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its place.
    pub place: Place,
    /// Its role.
    pub role: Role,
    /// The connection to the previous vertex; `None` for the first.
    pub by: Option<Connection>,
}

/// A connection between two vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// A PCIe link.
    Pcie {
        /// The link that both ends support, if known.
        possible: Option<PcieLink>,
        /// The link at its current speed. `None` above a GPU, since an idle GPU slows it down.
        current: Option<PcieLink>,
    },
    /// One vertex is a part of the other: ports of one switch, a root port on its host bridge, a
    /// host bridge on its NUMA node.
    Attachment,
    /// One vertex moves the data of the other.
    DataPath,
    /// A step between two NUMA nodes.
    Numa {
        /// The SLIT's distance in the direction of the route; 10 is a node's distance to itself.
        distance: Option<u32>,
    },
    /// A link between a CPU and a GPU in one package (NVLink-C2C).
    ChipToChip {
        /// The bandwidth in one direction, in MB/s, if a source gives it.
        bandwidth: Option<u32>,
    },
    /// Parallel NVLinks.
    NvLink {
        /// The number of links.
        links: u32,
    },
    /// AMD's XGMI.
    Xgmi {
        /// The number of consecutive links, if the driver shows it.
        hops: Option<u32>,
        /// The bandwidth in one direction, in MB/s, if the driver shows it.
        bandwidth: Option<u32>,
    },
}

/// The narrowest link on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// The index of the hop that the link leads to, in [`Route::hops`].
    pub hop: usize,
    /// The capacity in one direction at current speed; if that is unknown, at the possible speed.
    pub megabytes_per_second: u32,
}

impl Route {
    /// The narrowest link of the route; the first if there are several, `None` if no link is known.
    /// NVLinks and links between CPUs do not count, since no source gives their capacity.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let links = self.hops.iter().enumerate().filter_map(|(hop, vertex)| {
            let megabytes_per_second = vertex.by?.megabytes_per_second()?;
            Some(Bottleneck { hop, megabytes_per_second })
        });
        links.min_by_key(|link| link.megabytes_per_second)
    }
}

impl Connection {
    /// The capacity in one direction at current speed, or else at the possible speed.
    pub fn megabytes_per_second(self) -> Option<u32> {
        match self {
            Self::Pcie { possible, current } => {
                current.or(possible).map(PcieLink::megabytes_per_second)
            }
            Self::Xgmi { bandwidth, .. } | Self::ChipToChip { bandwidth } => bandwidth,
            Self::Attachment | Self::DataPath | Self::Numa { .. } | Self::NvLink { .. } => None,
        }
    }
}

impl Topology {
    /// The best route between two devices. `None` if no path is known, or if one of them does not
    /// exist.
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

/// An edge as a connection; `ahead` means from its first end to its second.
fn connection(edge: &Edge, ahead: bool) -> Connection {
    match *edge {
        Edge::Pcie(link) => Connection::Pcie { possible: link.possible, current: link.current },
        Edge::Attachment => Connection::Attachment,
        Edge::DataPath => Connection::DataPath,
        // The node with the lower number is the first end.
        Edge::Slit { there, back } => {
            Connection::Numa { distance: if ahead { there } else { back } }
        }
        Edge::ChipToChip { bandwidth } => Connection::ChipToChip { bandwidth },
        Edge::Fabric { fabric: Fabric::NvLink { links }, .. } => Connection::NvLink { links },
        Edge::Fabric { fabric: Fabric::Xgmi { hops, bandwidth }, .. } => {
            Connection::Xgmi { hops, bandwidth }
        }
    }
}
