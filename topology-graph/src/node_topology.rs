//! `NodeTopology`, the graph as a Kubernetes object
//! (`topology.dranet.io/v1alpha1`, cluster-scoped, named as the node).
//!
//! `shape` holds no identities: equal hardware gives equal bytes and an equal
//! hash. `identities` says whose devices they are. The conversion is lossless.
//! What is written here is also what the hash is taken of.

mod convert;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::CustomResourceExt;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Anomaly;

pub use convert::SpecError;

/// The graph of one node.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "topology.dranet.io",
    version = "v1alpha1",
    kind = "NodeTopology",
    plural = "nodetopologies",
    singular = "nodetopology",
    status = "NodeTopologyStatus",
    derive = "Default",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    doc = "The PCIe and NUMA distances between the GPUs and NICs of one node.",
    printcolumn = r#"{"name":"GPUs","type":"integer","jsonPath":".spec.summary.gpus"}"#,
    printcolumn = r#"{"name":"NICs","type":"integer","jsonPath":".spec.summary.nics"}"#,
    printcolumn = r#"{"name":"NUMA","type":"integer","jsonPath":".spec.summary.numaNodes"}"#,
    printcolumn = r#"{"name":"Anomalies","type":"integer","jsonPath":".spec.summary.anomalies"}"#,
    printcolumn = r#"{"name":"Shape","type":"string","jsonPath":".spec.shape.hash"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodeTopologySpec {
    /// Counts, for lists.
    #[serde(default)]
    pub summary: TopologySummary,
    /// The graph without identities.
    pub shape: ShapeSpec,
    /// Whose devices they are, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<DeviceIdentity>,
    /// Whether NICs can reach GPU memory directly, as far as it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_to_peer: Vec<PeerToPeer>,
    /// What was strange about the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<AnomalySchema>")]
    pub anomalies: Vec<Anomaly>,
}

/// Counts of what is in the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySummary {
    /// GPUs.
    pub gpus: u32,
    /// Network controllers.
    pub nics: u32,
    /// NUMA nodes, those without CPUs included.
    pub numa_nodes: u32,
    /// Anomalies.
    pub anomalies: u32,
}

/// The graph without identities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShapeSpec {
    /// Hash of all the rest.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub hash: String,
    /// The vertices of the PCI tree by place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vertices: Vec<VertexSpec>,
    /// The NUMA nodes by number, each with its row of the SLIT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<NumaNodeSpec>,
    /// NVLinks between GPUs, as far as anybody tells of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlinks: Vec<NvLinkSpec>,
}

/// One vertex of the PCI tree. What is absent is unknown, or does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VertexSpec {
    /// A PCI address, or a root bus (`pci0000:15`).
    pub at: String,
    /// The vertex above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// What it is.
    pub role: VertexRole,
    /// PCI class, six hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// PCI vendor and device id, `15b3:101e`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// The link that it could run: mega-transfers per lane, `x`, lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_link: Option<String>,
    /// Of a NIC whose data another function moves: that function, known by the
    /// adapter's vital product data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_path: Option<String>,
    /// Who tells where it is; sysfs, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Who tells its NUMA node; sysfs, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_evidence: Option<String>,
}

/// What a vertex is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum VertexRole {
    /// A host bridge with its root bus.
    Root,
    /// A root port, a port of a switch, or a bridge.
    Bridge,
    /// A whole switch, as overlays tell it.
    Switch,
    /// A GPU.
    Gpu,
    /// A network controller.
    Nic,
    /// The function that moves the data of network controllers.
    DataPath,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
}

/// The NVLinks between two GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NvLinkSpec {
    /// The GPU of the lower address.
    pub a: String,
    /// The other GPU.
    pub b: String,
    /// How many.
    pub links: u32,
    /// Who tells it.
    pub evidence: String,
}

/// The names of one GPU or NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceIdentity {
    /// Its PCI address.
    pub at: String,
    /// A GPU's unique name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// A GPU's product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A NIC's RDMA device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_device: Option<String>,
    /// A NIC's network interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netdevs: Vec<String>,
    /// GUID of the RDMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<String>,
    /// GUID of the whole adapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sys_image_guid: Option<String>,
}

/// Whether one NIC can reach one GPU's memory directly.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerToPeer {
    /// The GPU's address.
    pub gpu: String,
    /// The NIC's address.
    pub nic: String,
    /// `ok`, `degraded-link`, `acs-redirect`, `ats-missing`, `iommu` or `no-peer-memory`.
    pub verdict: String,
}

/// What the driver says about its own work.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTopologyStatus {
    /// Conditions in Kubernetes' usual form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

// The schema of `Anomaly`, which is a fact and knows no Kubernetes.
/// One oddity and what it is about.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct AnomalySchema {
    /// What it is about.
    subject: String,
    /// What sort of oddity.
    kind: String,
    /// What was found.
    detail: String,
}

/// The definition of [`NodeTopology`].
pub fn crd() -> CustomResourceDefinition {
    NodeTopology::crd()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_false(value: &bool) -> bool {
    !value
}
