//! Answers about objects of the cluster: `fabric`, `pools`, `version` and `diff`.

use super::ExplainPreemption;
#[cfg(test)]
use schemars::JsonSchema;
#[cfg(test)]
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// `kubectl dranet fabric -o json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are those of the JSON")]
pub(crate) struct Fabrics {
    /// The fabrics.
    pub(crate) fabrics: Vec<Fabric>,
    /// Groups that wait for one.
    pub(crate) waiting: Vec<WaitingGroup>,
    /// `ComputeDomain`s that pods without a node need and that do not exist.
    pub(crate) compute_domains: Vec<MissingDomain>,
    /// Fabrics and domains that another source divides.
    pub(crate) conflicts: Vec<SourceConflict>,
}

/// A fabric.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Fabric {
    /// Its name.
    pub(crate) name: String,
    /// Its nodes.
    pub(crate) nodes: usize,
    /// Nodes with nothing in use.
    pub(crate) nodes_free: usize,
    /// Free GPUs.
    pub(crate) gpus_free: usize,
    /// Free NICs.
    pub(crate) nics_free: usize,
}

/// A group that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitingGroup {
    /// Its namespace and the value of the label `dranet.io/fabric-group` of its pods.
    pub(crate) name: String,
    /// What people call it: kind, namespace and name of its job.
    pub(crate) job: String,
    /// Pods that wait.
    pub(crate) pods: usize,
    /// Why.
    pub(crate) why: String,
    /// How many of them fit on each fabric now.
    pub(crate) places: BTreeMap<String, usize>,
    /// What preemptor does for it, if pods of lower priority have what it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) preemption: Option<ExplainPreemption>,
}

/// A `ComputeDomain` that does not exist.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct MissingDomain {
    /// Its namespace and name.
    pub(crate) name: String,
    /// What people call the job of its pods: kind, namespace and name.
    pub(crate) job: String,
    /// Pods that wait for it.
    pub(crate) pods: usize,
    /// Why admission has not created it.
    pub(crate) why: String,
}

/// A fabric, or a domain of a level, that another source divides.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceConflict {
    /// `fabric`, `nvlink` or `block`.
    pub(crate) level: String,
    /// The value of the level's node label.
    pub(crate) domain: String,
    /// Where this value comes from.
    pub(crate) source: String,
    /// The source that divides it.
    pub(crate) other: String,
    /// What that source calls the parts, with their nodes.
    pub(crate) parts: BTreeMap<String, Vec<String>>,
}

/// `kubectl dranet pools -o json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Pools {
    /// The NicPools.
    pub(crate) pools: Vec<Pool>,
}

/// A NicPool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// Its name.
    pub(crate) name: String,
    /// NICs that the pool has addresses for.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub(crate) size: i64,
    /// NICs that have addresses from the pool.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub(crate) used: i64,
    /// NICs that can still get addresses.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub(crate) free: i64,
    /// Its ranges, with their first and last address if set.
    pub(crate) ranges: Vec<String>,
    /// Namespaces that may use it; null means all.
    pub(crate) namespaces: Option<Vec<String>>,
    /// Type of the interface that goes with an address, if set.
    pub(crate) r#type: Option<String>,
    /// Why it gives no addresses, if it is invalid.
    pub(crate) invalid: Option<String>,
    /// The addresses that claims have.
    pub(crate) addresses: Vec<PoolAddress>,
}

/// An address that a claim has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolAddress {
    /// The address, with the length of its network.
    pub(crate) address: String,
    /// Namespace of the claim.
    pub(crate) namespace: String,
    /// Name of the claim.
    pub(crate) claim: String,
    /// The node whose driver took it.
    pub(crate) node: String,
    /// The device that it was taken for.
    pub(crate) device: String,
}

/// `kubectl dranet version -o json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Version {
    /// Version of this program.
    pub(crate) client: String,
    /// Version of the API server.
    pub(crate) server: Option<String>,
    /// What runs in the cluster.
    pub(crate) components: Vec<Component>,
}

/// A part of the project in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Component {
    /// Its name.
    pub(crate) name: String,
    /// Tag or digest of its image.
    pub(crate) version: String,
    /// How many replicas are ready, as `1/2`.
    pub(crate) ready: String,
    /// Its image.
    pub(crate) image: String,
}

/// `kubectl dranet diff -o json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Diff {
    /// The objects that differ.
    pub(crate) objects: Vec<Different>,
}

/// An object that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Different {
    /// Its kind.
    pub(crate) kind: String,
    /// Its namespace and name.
    pub(crate) name: String,
    /// How.
    pub(crate) change: ChangeKind,
    /// For a changed object: its fields.
    pub(crate) fields: Vec<FieldChange>,
}

/// How an object differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangeKind {
    /// It was not there before.
    Added,
    /// It is no longer there.
    Removed,
    /// A field has a different value.
    Changed,
}

/// A field with a different value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct FieldChange {
    /// Where it is.
    pub(crate) path: String,
    /// Its value before.
    pub(crate) before: Value,
    /// Its value after.
    pub(crate) after: Value,
}
