//! The part of the object that is the same on equal hardware.

use serde::{Deserialize, Serialize};

#[cfg(feature = "crd")]
use super::LINK;
#[cfg(feature = "crd")]
use crate::address::PLACE;

/// The graph without identities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShapeSpec {
    /// The hash of all other fields of the shape.
    #[cfg_attr(feature = "crd", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub hash: String,
    /// The vertices of the PCI tree by place, without root buses. A root bus exists if a vertex is
    /// under it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vertices: Vec<VertexSpec>,
    /// The NUMA nodes by number, each with its row of the SLIT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<NumaNodeSpec>,
    /// The CPU sockets by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketSpec>,
    /// Links between GPUs other than PCIe, if a source reports them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_links: Vec<GpuLinkSpec>,
}

/// One vertex of the PCI tree. An absent field is unknown or does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VertexSpec {
    /// A PCI address.
    #[cfg_attr(feature = "crd", schemars(regex(pattern = PLACE)))]
    pub at: String,
    /// The vertex above: a PCI address, or a root bus (`pci0000:15`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(regex(pattern = PLACE)))]
    pub under: Option<String>,
    /// Its role; `port` if absent.
    #[serde(default, skip_serializing_if = "VertexRole::is_port")]
    pub role: VertexRole,
    /// PCI class, six hexadecimal digits; `060400` if absent on a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(regex(pattern = "^[0-9a-f]{6,8}$")))]
    pub class: Option<String>,
    /// PCI vendor and device ID, `15b3:101e`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(regex(pattern = "^[0-9a-f]{4}:[0-9a-f]{4}$")))]
    pub id: Option<String>,
    /// NUMA node with CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// Whether it has an RDMA device.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rdma: bool,
    /// Link layer of its RDMA ports, `infiniband` or `ethernet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_layer: Option<String>,
    /// The fastest supported link: mega-transfers per second and lane, `x`, lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(regex(pattern = LINK)))]
    pub max_link: Option<String>,
    /// For a NIC whose data another function moves: that function, identified by the adapter's
    /// vital product data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(regex(pattern = PLACE)))]
    pub data_path: Option<String>,
    /// For a virtual function: its physical function on the same machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(regex(pattern = PLACE)))]
    pub physical_function: Option<String>,
    /// The source of its place; sysfs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The source of its NUMA node; sysfs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_evidence: Option<String>,
}

/// The role of a vertex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum VertexRole {
    /// A root port if only a root bus is above it; otherwise a port of a switch.
    #[default]
    Port,
    /// A whole switch whose ports are unknown, from an overlay.
    Switch,
    /// A GPU.
    Gpu,
    /// A network controller.
    Nic,
    /// The function that moves the data of network controllers.
    DataPath,
    /// An NVMe controller.
    Nvme,
}

impl VertexRole {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    fn is_port(&self) -> bool {
        *self == Self::Port
    }
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NumaNodeSpec {
    /// Its number.
    pub node: u32,
    /// Its CPUs as a list of ranges; empty on a memory-only node.
    pub cpus: String,
    /// Its row of the SLIT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<u32>,
    /// Its CPU socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// The source of these facts; sysfs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// One CPU socket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SocketSpec {
    /// Its number.
    pub socket: u32,
    /// Its CPUs as a list of ranges.
    pub cpus: String,
    /// The source of these facts; sysfs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// GPUs that are all connected to each other in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GpuLinkSpec {
    /// Their addresses.
    pub gpus: Vec<String>,
    /// The kind of connection.
    pub kind: GpuLinkKind,
    /// For `nvlink`, the number of parallel links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<u32>,
    /// For `xgmi`, the number of consecutive links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<u32>,
    /// For `xgmi`, the bandwidth in one direction, in MB/s; unknown if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u32>,
    /// The source of these facts; sysfs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// The kinds of connections between GPUs other than PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum GpuLinkKind {
    /// NVIDIA's NVLink, with or without switches.
    Nvlink,
    /// AMD's XGMI.
    Xgmi,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_false(value: &bool) -> bool {
    !value
}
