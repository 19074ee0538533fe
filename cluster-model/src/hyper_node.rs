//! Volcano's `HyperNode` (`topology.volcano.sh/v1alpha1`): nodes, or other `HyperNode`s, behind one
//! switch. The lowest tier is nearest to the nodes (volcano-sh/volcano v1.15.1,
//! `staging/src/volcano.sh/apis/pkg/apis/topology/v1alpha1/hypernode_types.go`).

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;

/// Nodes that are near each other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HyperNode {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its members.
    #[serde(default)]
    pub spec: HyperNodeSpec,
}

/// What a `HyperNode` says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct HyperNodeSpec {
    /// The lower, the nearer are its members.
    #[serde(default)]
    pub tier: i64,
    /// Its members.
    #[serde(default)]
    pub members: Vec<Member>,
}

/// Members of a `HyperNode`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Member {
    /// `Node` or `HyperNode`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Which of them.
    #[serde(default)]
    pub selector: MemberSelector,
}

/// Selects members: one of its fields is set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberSelector {
    /// The one with this name.
    pub exact_match: Option<ExactMatch>,
    /// Those whose names a regular expression of Go matches somewhere.
    pub regex_match: Option<RegexMatch>,
    /// Nodes by their labels.
    pub label_match: Option<LabelSelector>,
}

/// A name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExactMatch {
    /// The name.
    #[serde(default)]
    pub name: String,
}

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RegexMatch {
    /// A regular expression.
    #[serde(default)]
    pub pattern: String,
}

topology_graph::resource!(
    HyperNode,
    "topology.volcano.sh",
    "v1alpha1",
    "hypernodes",
    ClusterResourceScope
);
