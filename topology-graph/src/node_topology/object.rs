//! The Kubernetes object around the specification.
//!
//! It implements the traits of `k8s-openapi`, so that Kubernetes clients can read and write it
//! although this crate has no client.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{NodeTopologySpec, NodeTopologyStatus};

/// The PCIe and NUMA distances between the GPUs and NICs of one node.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct NodeTopology {
    /// Its name is the node's.
    #[cfg_attr(feature = "crd", schemars(skip))]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The graph.
    pub spec: NodeTopologySpec,
    /// What the driver reports about its own work.
    #[serde(default)]
    pub status: Option<NodeTopologyStatus>,
}

impl NodeTopology {
    /// Creates an object with this name and without status.
    pub fn new(name: &str, spec: NodeTopologySpec) -> Self {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { metadata, spec, status: None }
    }
}

crate::resource!(NodeTopology, "topology.dranet.io", "v1alpha1", "nodetopologies", ClusterResourceScope, written status);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_carries_its_type_and_reads_back() {
        let object = NodeTopology::new("node-1", NodeTopologySpec::default());
        let value = serde_json::to_value(&object).unwrap();
        assert_eq!(value["apiVersion"], "topology.dranet.io/v1alpha1");
        assert_eq!(value["kind"], "NodeTopology");
        assert_eq!(value["metadata"]["name"], "node-1");
        assert_eq!(value.get("status"), None);
        assert_eq!(serde_json::from_value::<NodeTopology>(value).unwrap(), object);
    }
}
