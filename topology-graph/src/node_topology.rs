//! `NodeTopology`, the graph as a Kubernetes object (`topology.dranet.io/v1alpha1`, cluster-scoped,
//! named after the node).
//!
//! `shape` holds no identities: equal hardware gives equal bytes and an equal hash. The other fields
//! hold what differs between equal machines: names, current links, memory, volumes. The conversion
//! is lossless. The hash is computed from this form.

mod condition;
mod convert;
#[cfg(feature = "crd")]
mod definition;
mod object;
mod shape;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

#[cfg(feature = "crd")]
use crate::address::PLACE;
use crate::{Anomaly, DeviceIdentity};

pub use condition::{HostCondition, conditions};
pub use convert::SpecError;
#[cfg(feature = "crd")]
pub use definition::{Column, crd, definition};
pub use object::NodeTopology;
pub use shape::{
    GpuLinkKind, GpuLinkSpec, NumaNodeSpec, ShapeSpec, SocketSpec, VertexRole, VertexSpec,
};

/// Mega-transfers per second and lane, `x`, lanes.
#[cfg(feature = "crd")]
const LINK: &str = "^[0-9]+x[0-9]+$";

/// The graph of one node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeTopologySpec {
    /// Counts, shown by `kubectl get`.
    #[serde(default)]
    pub summary: TopologySummary,
    /// The network within which the node's NICs reach others, as its cloud names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<String>,
    /// Which network namespaces may use the node's RDMA devices (`rdma-system(8)`): `shared` if
    /// all, `exclusive` if only that of the device. Not set without RDMA devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_namespace_mode: Option<String>,
    /// Whether the node's driver lets containers with RDMA devices lock all of their memory. Not set if
    /// it gives no NICs to containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_memory: Option<bool>,
    /// The policy of the kubelet's topology manager, which chooses the NUMA nodes of the GPUs that a pod
    /// gets from a device plugin. Not set if the node's driver does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_manager_policy: Option<String>,
    /// The graph without identities.
    pub shape: ShapeSpec,
    /// The names and IDs of the devices, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<DeviceIdentity>,
    /// What the NICs are for, and their current connections, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<NicSpec>,
    /// The pairs of GPUs and compute NICs. It follows from the other fields, as `cells` and `paths`
    /// do. These three name GPUs and NICs by number, counted from 0 in address order, and omit
    /// virtual functions, which are where their physical functions are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairSpec>,
    /// The groups of GPUs and compute NICs that are near each other, by level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellSpec>,
    /// The paths from GPUs to NICs of every role, in the words of `nvidia-smi topo -m`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathSpec>,
    /// The PCIe links above switches, data paths and NVMe controllers, at their current speed.
    /// Links above NICs are in `nics`. Links above GPUs are omitted, since an idle GPU slows its
    /// link down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkSpec>,
    /// The memory of the NUMA nodes, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<NumaMemorySpec>,
    /// NVMe controllers, and the bridges that are only above NVMe controllers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<VertexSpec>,
    /// Facts about the machine that are missing, invalid or contradictory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crd", schemars(with = "Vec<definition::AnomalySchema>"))]
    pub anomalies: Vec<Anomaly>,
}

/// The numbers of devices, NUMA nodes and anomalies in the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopologySummary {
    /// GPUs.
    pub gpus: u32,
    /// Network controllers.
    pub nics: u32,
    /// NUMA nodes, including those without CPUs.
    pub numa_nodes: u32,
    /// Anomalies.
    pub anomalies: u32,
}

/// The current connection of one NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicSpec {
    /// Its PCI address.
    #[cfg_attr(feature = "crd", schemars(regex(pattern = PLACE)))]
    pub at: String,
    /// Its current link: mega-transfers per second and lane, `x`, lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(regex(pattern = LINK)))]
    pub link: Option<String>,
    /// How the ports above it route requests to peers: `direct`, `direct-translated` or
    /// `redirect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acs: Option<String>,
    /// What it is for: `compute`, `storage` or `management`.
    pub role: String,
    /// Why it has this role. Not set for virtual functions, which have the role of their physical
    /// function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_reason: Option<String>,
    /// The number of its rail, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<u32>,
    /// Where its rail comes from, or why a compute NIC has none. Not set for virtual functions, which
    /// have the rail of their physical function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail_reason: Option<String>,
    /// The rate of its best RDMA port in megabits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// The state of that port: `Active`, `ActiveDefer`, `Armed`, `Initializing` or `Down`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The PCI addresses of the other functions of its adapter whose ports are in one bond with its own
    /// and have its RDMA device (RoCE LAG).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bonded: Vec<String>,
    /// Whether it can access the memory of GPUs, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_direct: Vec<GpuDirectSpec>,
}

/// The GPUs for which the NIC has the same GPUDirect RDMA verdict.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GpuDirectSpec {
    /// `ok`, `degraded-link`, `acs-redirect`, `ats-missing`, `iommu` or `no-peer-memory`.
    pub verdict: String,
    /// The GPUs by number, counted from 0 in address order.
    pub gpus: Vec<u32>,
}

/// A GPU and the compute NICs that are its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PairSpec {
    /// The GPU's number.
    pub gpu: u32,
    /// The NICs' numbers.
    pub nics: Vec<u32>,
}

/// GPUs and compute NICs that are near each other.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CellSpec {
    /// The level, as in the annotation `dranet.io/alignment`.
    pub level: String,
    /// What the devices have in common: a NUMA node, a root bus, a root port or a switch.
    pub key: String,
    /// The GPUs' numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
    /// The NICs' numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<u32>,
}

/// NICs to which a GPU has the same kind of path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PathSpec {
    /// The GPU's number.
    pub gpu: u32,
    /// The kind of path: `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; `?` if unknown.
    pub path: String,
    /// The NICs' numbers.
    pub nics: Vec<u32>,
}

/// PCIe links with the same current speed and width.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LinkSpec {
    /// Mega-transfers per second and lane, `x`, lanes.
    #[cfg_attr(feature = "crd", schemars(regex(pattern = LINK)))]
    pub link: String,
    /// The PCI addresses of their lower ends.
    pub at: Vec<String>,
}

/// The memory of one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NumaMemorySpec {
    /// The node's number.
    pub node: u32,
    /// Its size in bytes, without memory reserved by firmware and kernel.
    pub bytes: u64,
}

/// What the driver reports about its own work.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeTopologyStatus {
    /// `Complete`: the NUMA node of every GPU and NIC is known, and every file could be read.
    /// `Consistent`: all sources agree. `KernelModules`: the modules that the driver's pod must
    /// load are working. `PeerMemory`: NICs can access the memory of GPUs, through a module or
    /// dma-buf. `NICsHealthy`: no NIC is down or has another problem. `NICsWithheld`: NICs are not
    /// published. `RailsApplied`: the operator's rails of NICs are used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crd", schemars(with = "Vec<definition::ConditionSchema>"))]
    pub conditions: Vec<Condition>,
}
