//! Answers about pods: `plan`, `explain`, `verify` and `lint`.

#[cfg(test)]
use super::Object;
use cluster_model::view::ObjectKey;
use dra_allocator::explain::Relaxation;
#[cfg(test)]
use schemars::JsonSchema;
#[cfg(test)]
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use topology_graph::{Gdr, PathKind};

/// `kubectl dranet plan -o json`: one document for each pod.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema), schemars(rename = "Plan"))]
#[serde(untagged)]
pub(crate) enum PlanAnswer {
    /// A pod that gets a claim.
    Planned(Box<PlannedPod>),
    /// A pod that stays as it is.
    Unchanged(Unchanged),
    /// A pod that is refused.
    Denied(Denied),
}

/// A pod that gets a claim.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema), schemars(rename = "Planned"))]
#[serde(deny_unknown_fields)]
pub(crate) struct PlannedPod {
    /// The pod as admission rewrites it.
    #[cfg_attr(test, schemars(with = "Object"))]
    pub(crate) pod: Value,
    /// The ResourceClaimTemplate.
    #[cfg_attr(test, schemars(with = "Object"))]
    pub(crate) template: Value,
    /// The join.
    pub(crate) join: String,
    /// How near the devices are.
    pub(crate) level: String,
    /// The reason for the join.
    pub(crate) why: String,
    /// Search steps on one node at worst.
    pub(crate) steps: u64,
    /// Admission's warnings.
    pub(crate) warnings: Vec<String>,
    /// What each node would allocate now.
    pub(crate) nodes: Vec<PlanNode>,
    /// For a pod of a group: where the group would be placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fabric: Option<PlanFabric>,
}

/// What a node would allocate now.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanNode {
    /// The node.
    pub(crate) name: String,
    /// Whether the pod fits; null if unknown.
    pub(crate) fits: Option<bool>,
    /// Whether exactly these devices would be allocated; null if the pod does not fit.
    pub(crate) exact: Option<bool>,
    /// Why it does not fit, or why that is unknown.
    pub(crate) reason: Option<String>,
    /// The devices.
    pub(crate) devices: Vec<RequestedDevice>,
    /// Each GPU with each NIC.
    pub(crate) pairs: Vec<Pair>,
    /// What the pod can expect when it starts on a node that binds NICs late; null on others.
    #[serde(rename = "atStart")]
    pub(crate) at_start: Option<ExpectedAtStart>,
}

/// What a pod can expect when it starts on a node that binds NICs late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ExpectedAtStart {
    /// How near each NIC is asked to be to its GPU, as in `dranet.io/alignment`.
    pub(crate) within: String,
    /// For how many eighths of the kubelet's choices of GPUs so near NICs are free; null if unknown.
    pub(crate) near_eighths: Option<u32>,
    /// How many GPUs are divided, or pods without a claim have, not known which; null if unknown.
    pub(crate) hidden_gpus: Option<usize>,
    /// The policy of the kubelet's topology manager; null if unknown.
    pub(crate) topology_policy: Option<String>,
}

/// A device, and the request for it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestedDevice {
    /// The request, with the alternative after a slash.
    pub(crate) request: String,
    /// The driver.
    pub(crate) driver: String,
    /// The pool.
    pub(crate) pool: String,
    /// The device.
    pub(crate) device: String,
}

/// A GPU, a NIC and the path between them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    /// The GPU.
    pub(crate) gpu: String,
    /// The NIC.
    pub(crate) nic: String,
    /// `PIX`, `PXB`, `PHB`, `NODE`, `SYS` and the like.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) path: PathKind,
}

/// Where a group would be placed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanFabric {
    /// Pods of the group.
    pub(crate) size: usize,
    /// Whether nobody says the size, so that each pod is placed as soon as it exists.
    #[serde(default, rename = "oneByOne", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_one_by_one: bool,
    /// How many fit on each fabric.
    pub(crate) places: BTreeMap<String, usize>,
    /// The fabric that it would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chosen: Option<String>,
    /// The domains of levels below the fabric that it would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domains: Option<Vec<PlanDomain>>,
    /// Why it would wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<String>,
}

/// A domain of a level that pods of a group would go to.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanDomain {
    /// `nvlink` or `block`.
    pub(crate) level: String,
    /// The value of the level's node label.
    pub(crate) name: String,
    /// How many of the pods.
    pub(crate) pods: usize,
}

/// A pod that stays as it is.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Unchanged {
    /// The pod.
    #[cfg_attr(test, schemars(with = "Object"))]
    pub(crate) pod: Value,
    /// Always null.
    pub(crate) template: (),
    /// Admission's warnings.
    pub(crate) warnings: Vec<String>,
}

/// A pod that is refused.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Denied {
    /// Why.
    pub(crate) denied: Denial,
}

/// Why a pod is refused.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Denial {
    /// The annotation.
    pub(crate) annotation: String,
    /// Its value.
    pub(crate) value: String,
    /// What is allowed.
    pub(crate) allowed: Option<String>,
    /// The whole sentence.
    pub(crate) message: String,
}

/// `kubectl dranet explain -o json`: one document for each pod.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(untagged)]
pub(crate) enum Explain {
    /// The results on the nodes.
    Nodes(Box<ExplainNodes>),
    /// There is nothing to explain.
    Fine(ExplainFine),
    /// It is denied, or cannot be scheduled anywhere.
    Refused(ExplainRefused),
}

/// There is nothing to explain.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainFine {
    /// Kind and name.
    pub(crate) pod: String,
    /// Why.
    pub(crate) message: String,
}

/// It is denied, or cannot be scheduled anywhere.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRefused {
    /// Kind and name.
    pub(crate) pod: String,
    /// Why.
    pub(crate) refused: String,
}

/// The results of a pod on the nodes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ExplainNodes {
    /// Kind and name.
    pub(crate) pod: String,
    /// What keeps it from running besides devices.
    pub(crate) waits: Vec<String>,
    /// What may keep it from running, but cannot be checked.
    pub(crate) remarks: Vec<String>,
    /// Nodes where its claims fit.
    pub(crate) fits: Vec<String>,
    /// Nodes with the same result.
    pub(crate) groups: Vec<ExplainGroup>,
    /// Nodes that its own selectors exclude.
    pub(crate) not_selected: Vec<String>,
    /// Nodes that are excluded for other reasons: not ready, cordoned, tainted, full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) barred: Option<Vec<Barred>>,
    /// Devices that are down or tainted, and when the pod would fit: a sentence for each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) down: Option<Vec<String>>,
    /// What the pod can expect on nodes that fit and bind NICs late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_start: Option<Vec<ExplainAtStart>>,
    /// Nodes on which it is bound and then evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) evicted: Option<Vec<Evicted>>,
    /// NICs that nodes do not publish, and why: a sentence for each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<Vec<String>>,
    /// What preemptor does for it, if pods of lower priority have what it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preemption: Option<ExplainPreemption>,
    /// Changes each of which alone would let it run.
    pub(crate) changes: Vec<ExplainChange>,
}

/// A taint that evicts a pod after it is bound.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Evicted {
    /// The node.
    pub(crate) node: String,
    /// The key of the taint.
    pub(crate) taint: String,
    /// The device that has the taint; null if the node has it.
    pub(crate) device: Option<String>,
    /// For how many seconds it is tolerated: on a device since the taint was added, on a node since the
    /// pod was bound.
    pub(crate) after_seconds: i64,
    /// The same in words.
    #[serde(skip)]
    pub(crate) text: String,
}

/// What preemptor does for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainPreemption {
    /// The nodes that it, or the pods of its group, get.
    pub(crate) nodes: Vec<String>,
    /// Who is evicted.
    pub(crate) victims: Vec<PreemptionVictim>,
    /// Why nobody is evicted although pods of lower priority have what it needs; otherwise null.
    pub(crate) refused: Option<String>,
    /// Whether preemptor is installed.
    pub(crate) installed: bool,
}

/// Pods that are evicted together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PreemptionVictim {
    /// Their job, if they are the pods of one.
    pub(crate) job: Option<String>,
    /// Namespace and name of each pod.
    pub(crate) pods: Vec<String>,
    /// The highest of their priorities.
    pub(crate) priority: i32,
}

/// `kubectl dranet defrag -o json`: one document for each pod or workload.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Defrag {
    /// What is to fit.
    pub(crate) pod: String,
    /// How many of it.
    pub(crate) count: usize,
    /// The moves in order; null if no plan was found.
    pub(crate) moves: Option<Vec<DefragMove>>,
    /// The nodes on which it fits after the moves.
    pub(crate) nodes: Vec<String>,
    /// How many pods may be moved.
    pub(crate) movable: usize,
}

/// A pod that is evicted so that its controller creates it again.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct DefragMove {
    /// Namespace and name.
    pub(crate) pod: String,
    /// Its controller, which creates it again.
    pub(crate) owner: String,
    /// The node that it leaves.
    pub(crate) from: String,
    /// The node with a place for the new pod.
    pub(crate) to: String,
    /// How many devices it has.
    pub(crate) devices: usize,
}

/// What a pod can expect on some nodes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainAtStart {
    /// The nodes.
    pub(crate) nodes: Vec<String>,
    /// What it can expect on each.
    pub(crate) expected: ExpectedAtStart,
}

/// Nodes with the same result.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ExplainGroup {
    /// The nodes.
    pub(crate) nodes: Vec<String>,
    /// Whether and why it does not fit.
    pub(crate) verdict: String,
    /// One for each request.
    pub(crate) reasons: Vec<String>,
    /// Who holds the devices of the first node.
    pub(crate) in_use: Vec<String>,
    /// Changes that would be sufficient on the first node.
    #[serde(skip)]
    pub(crate) relaxations: Vec<Relaxation>,
}

/// Excluded nodes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Barred {
    /// Why.
    pub(crate) why: String,
    /// The nodes.
    pub(crate) nodes: Vec<String>,
}

/// A change that would let the pod run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainChange {
    /// What to change.
    pub(crate) change: String,
    /// The number of nodes where it fits then; for a group, that of the fabric.
    pub(crate) nodes: usize,
    /// The fabric to which the group of the pod goes then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fabric: Option<String>,
}

/// `kubectl dranet verify -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Verify {
    /// Pods that have GPUs and NICs.
    pub(crate) pods: Vec<Verified>,
}

/// A pod that has GPUs and NICs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Verified {
    /// Namespace and name.
    pub(crate) pod: String,
    /// Its node.
    pub(crate) node: String,
    /// What it has.
    pub(crate) pairs: Vec<VerifiedPair>,
    /// The farthest path that its annotations allow.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) promised: Option<PathKind>,
    /// The farthest path of the same claims on the empty node.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) possible: Option<PathKind>,
    /// Whether a pair is farther than promised.
    pub(crate) worse: bool,
    /// A text for each NIC that carries less than it could.
    pub(crate) degraded: Vec<String>,
    /// Its claims that have devices.
    #[serde(skip)]
    pub(crate) claims: Vec<ObjectKey>,
}

/// A GPU and a NIC of a pod.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct VerifiedPair {
    /// The GPU.
    pub(crate) gpu: String,
    /// The NIC.
    pub(crate) nic: String,
    /// The path between them.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) path: PathKind,
    /// Whether the NIC can reach the GPU's memory; null without `--gpudirect`.
    pub(crate) gpu_direct: Option<GpuDirect>,
    /// The names that people have for them.
    #[serde(skip)]
    pub(crate) names: [String; 2],
    /// Whether they are within the level that plans keep at least.
    #[serde(skip)]
    pub(crate) is_near: bool,
    /// The PCI addresses of GPU and NIC.
    #[serde(skip)]
    pub(crate) addresses: [String; 2],
}

/// Whether a NIC can reach a GPU's memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct GpuDirect {
    /// `ok`, `degraded-link`, `acs-redirect`, `ats-missing`, `iommu`, `no-peer-memory` or
    /// `unknown`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) verdict: Gdr,
    /// The facts behind the verdict.
    pub(crate) evidence: String,
    /// Why it cannot; null if nothing blocks it.
    pub(crate) why: Option<String>,
    /// What to change.
    pub(crate) what_to_do: Option<String>,
}

/// `kubectl dranet lint -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Lint {
    /// The objects that were checked.
    pub(crate) claims: Vec<Linted>,
}

/// A claim, a template or a pod.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Linted {
    /// Its kind.
    pub(crate) kind: String,
    /// Its name; with the namespace for objects of the cluster.
    pub(crate) name: String,
    /// What is wrong with it.
    pub(crate) findings: Vec<LintFinding>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// It does less than it seems to.
    Note,
    /// It works now, but will not always work.
    Warning,
    /// It does not work.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// What is wrong with a claim, a template or a pod.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct LintFinding {
    /// The name of the check.
    pub(crate) check: String,
    /// Its severity.
    pub(crate) severity: Severity,
    /// Where.
    pub(crate) place: String,
    /// What is wrong, and what to do.
    pub(crate) message: String,
}
