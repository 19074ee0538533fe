//! The labels and kinds of objects from which the domains of levels are copied.
//!
//! The sources, each checked in what its project publishes:
//! - `nvidia.com/gpu.clique`: NVIDIA's GPU feature discovery and device plugin. The value,
//!   `<cluster UUID>.<clique>`, can change while a node lives.
//! - `accelerator.topograph.run/domain`, `fabric.topograph.run/tier-0`: topograph 1.0. Tier 0 is
//!   the switch next to the node.
//! - `network.topology.nvidia.com/accelerator`, `…/leaf`: topograph before 1.0.
//! - `topology.k8s.aws/ultraserver-id`, `topology.k8s.aws/network-node-layer-N`: AWS. The highest
//!   number is nearest to the instance; there are three layers or four.
//! - `cloud.google.com/gce-topology-subblock`: GKE.
//! - `oci.oraclecloud.com/rdma.local_block_id`: OKE.
//! - `ib/torset`: the torset labeler of Azure/ai-infrastructure-on-azure (commit a01b073,
//!   `utilities/aks/torset_labeler/helm/README.md`): nodes behind one leaf switch, as SHARP finds them.
//!   AKS itself sets no label of this kind.
//! - `HyperNode` of Volcano and `Topology` of Kueue: `foreign_levels.rs`.

use cluster_model::names::label::NVLINK_CLIQUE;

/// The name of Kueue's `Topology` as a source.
pub(crate) const TOPOLOGY: &str = "kueue.x-k8s.io/Topology";
/// The name of Volcano's `HyperNode` as a source.
pub(crate) const HYPER_NODE: &str = "topology.volcano.sh/HyperNode";

/// The sources of NVLink domains, the best one first.
pub(crate) const NVLINK: [&str; 4] = [
    NVLINK_CLIQUE,
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "topology.k8s.aws/ultraserver-id",
];
/// The sources of blocks, the best one first.
pub(crate) const BLOCK: [&str; 9] = [
    "fabric.topograph.run/tier-0",
    "network.topology.nvidia.com/leaf",
    "topology.k8s.aws/network-node-layer-4",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "oci.oraclecloud.com/rdma.local_block_id",
    "ib/torset",
    HYPER_NODE,
    TOPOLOGY,
];
