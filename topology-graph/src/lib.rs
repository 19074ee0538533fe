//! PCI addresses, the sysfs reader, and the PCIe/NUMA distance graph with its output formats.
//!
//! Facts → model → decision: [`read`] reads a machine into a [`Snapshot`], and [`Topology::build`]
//! builds its graph. The graph says how far apart devices are ([`Topology::path`]), which belong
//! together ([`Topology::cells`]) and which NIC goes with which GPU ([`Topology::pairs`]). Only
//! [`read`] does IO. The crate uses no Kubernetes client, no netlink, no clock and no environment
//! variables.
//!
//! ```no_run
//! use topology_graph::{HostRoot, Overlay, Topology, matrix, read};
//!
//! let snapshot = read(&HostRoot::at("/"))?;
//! let overlay = Overlay::built_in("Standard_ND128isr_GB300_v6");
//! let (topology, anomalies) = Topology::build(&snapshot, overlay.as_ref());
//! let text = matrix(&topology);
//! # Ok::<(), topology_graph::ReadError>(())
//! ```

mod accelerator;
mod acs;
mod address;
mod anomaly;
mod build;
mod cells;
mod chip_to_chip;
pub mod class;
mod device;
mod diff;
mod evidence;
#[cfg(feature = "fixture")]
pub mod fixture;
mod formats;
mod gdr;
mod graph;
mod identity;
mod link;
mod nccl;
mod nic_role;
mod node_topology;
mod numa;
mod nvlink;
mod overlay;
mod pairs;
mod path;
mod resource;
mod roles;
mod route;
mod shape;
mod snapshot;
mod subnet;
mod sysfs;
mod text;
mod topology;
mod unknown_links;
mod vendor;

pub use accelerator::{Accelerator, ParsePciClassError, PciClass};
pub use acs::{Acs, ParseAcsError};
pub use address::{ParseAddressError, PciAddress, PcieRoot};
pub use anomaly::{Anomaly, AnomalyKind};
pub use cells::{Cell, Level, ParseLevelError};
pub use device::{Gpu, Nic, Nvme};
pub use diff::diff;
pub use evidence::{Evidence, ParseEvidenceError};
pub use formats::{
    Fold, Format, JsonError, MatrixOptions, ParseFoldError, ParseFormatError, ParseThemeError,
    Theme, UnknownDevice, from_json, json, matrix, matrix_with, route, svg,
};
pub use gdr::{Gdr, ParseGdrError};
pub use graph::{Place, Role};
pub use identity::DeviceIdentity;
pub use link::PcieLink;
pub use nccl::export::{nccl_xml, nccl_xml_of};
pub use nccl::need::NcclFileNeed;
pub use nccl::{NcclXml, NcclXmlError};
pub use nic_role::{NicRole, ParseNicRoleError};
pub use node_topology::{
    CellSpec, GpuDirectSpec, GpuLinkKind, GpuLinkSpec, HostCondition, LinkSpec, NicSpec,
    NodeTopology, NodeTopologySpec, NodeTopologyStatus, NumaMemorySpec, NumaNodeSpec, PairSpec,
    PathSpec, ShapeSpec, SocketSpec, SpecError, TopologySummary, VertexRole, VertexSpec,
    conditions,
};
#[cfg(feature = "crd")]
pub use node_topology::{Column, crd, definition};
pub use numa::{CpuSet, NumaNode, ParseCpuSetError};
pub use overlay::Overlay;
pub use pairs::{Chance, ChanceRequest, NearestRequest, Pair, PlanRequest, Served, binomial};
pub use path::{ParsePathKindError, PathKind};
pub use route::{Bottleneck, Connection, Hop, Route};
pub use shape::{ParseShapeHashError, ShapeHash};
pub use snapshot::{
    AcsControl, GpuFacts, IommuMode, LinkLayer, NcclFile, Netdev, NumaNodeFacts, NvLinkFacts,
    NvmeController, ParseLinkLayerError, ParsePortStateError, PciFunction, PortState, RdmaDevice,
    RdmaPort, SNAPSHOT_VERSION, Snapshot, SocketFacts, XgmiLink, scalable_function,
};
pub use subnet::{ParseSubnetPrefixError, SubnetPrefix};
#[cfg(feature = "archive")]
pub use sysfs::{ArchiveError, CaptureError, Identities, capture};
pub use sysfs::{HostRoot, ReadError, ReadObserver, read};
pub use topology::Topology;
