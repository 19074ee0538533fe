//! Kueue's `Topology` (`kueue.x-k8s.io/v1beta2`): the node labels of the levels of a network, widest
//! first (kubernetes-sigs/kueue v0.19.2, `apis/kueue/v1beta2/topology_types.go`; served since v0.15.0).

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// The levels of a network.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Topology {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its levels.
    #[serde(default)]
    pub spec: TopologySpec,
}

/// What a `Topology` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TopologySpec {
    /// The levels, widest first.
    #[serde(default)]
    pub levels: Vec<TopologyLevel>,
}

/// A level of a network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The label of nodes with their domain of this level.
    pub node_label: String,
}

topology_graph::resource!(
    Topology,
    "kueue.x-k8s.io",
    "v1beta2",
    "topologies",
    ClusterResourceScope
);
