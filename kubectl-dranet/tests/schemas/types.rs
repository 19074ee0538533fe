//! What `-o json` of each command contains. The schemas in `docs/reference/schemas` are generated
//! from these types, and real output is read into them.

#![allow(dead_code, reason = "only serde reads the fields")]

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// An object of Kubernetes.
type Object = Map<String, Value>;

/// `kubectl dranet plan -o json`: one document for each pod.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Plan {
    /// A pod that gets a claim.
    Planned(Box<Planned>),
    /// A pod that stays as it is.
    Unchanged(Unchanged),
    /// A pod that is refused.
    Denied(Denied),
}

/// A pod that gets a claim.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Planned {
    /// The pod as admission rewrites it.
    pub(crate) pod: Object,
    /// The ResourceClaimTemplate.
    pub(crate) template: Object,
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
    pub(crate) fabric: Option<PlanFabric>,
}

/// What a node would allocate now.
#[derive(Debug, Deserialize, JsonSchema)]
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
}

/// A device, and the request for it.
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    /// The GPU.
    pub(crate) gpu: String,
    /// The NIC.
    pub(crate) nic: String,
    /// `PIX`, `PXB`, `PHB`, `NODE`, `SYS` and the like.
    pub(crate) path: String,
}

/// Where a group would be placed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanFabric {
    /// Pods of the group.
    pub(crate) size: u64,
    /// How many fit on each fabric.
    pub(crate) places: BTreeMap<String, u64>,
    /// The fabric that it would take.
    pub(crate) chosen: Option<String>,
    /// The domains of levels below the fabric that it would take.
    pub(crate) domains: Option<Vec<PlanDomain>>,
    /// Why it would wait.
    pub(crate) waits: Option<String>,
}

/// A domain of a level that pods of a group would go to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanDomain {
    /// `nvlink` or `block`.
    pub(crate) level: String,
    /// The value of the level's node label.
    pub(crate) name: String,
    /// How many of the pods.
    pub(crate) pods: u64,
}

/// A pod that stays as it is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unchanged {
    /// The pod.
    pub(crate) pod: Object,
    /// Always null.
    pub(crate) template: (),
    /// Admission's warnings.
    pub(crate) warnings: Vec<String>,
}

/// A pod that is refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Denied {
    /// Why.
    pub(crate) denied: Denial,
}

/// Why a pod is refused.
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainFine {
    /// Kind and name.
    pub(crate) pod: String,
    /// Why.
    pub(crate) message: String,
}

/// It is denied, or cannot be scheduled anywhere.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRefused {
    /// Kind and name.
    pub(crate) pod: String,
    /// Why.
    pub(crate) refused: String,
}

/// The results of a pod on the nodes.
#[derive(Debug, Deserialize, JsonSchema)]
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
    pub(crate) barred: Option<Vec<Barred>>,
    /// Devices that are down or tainted, and when the pod would fit: a sentence for each node.
    pub(crate) down: Option<Vec<String>>,
    /// Changes each of which alone would let it run.
    pub(crate) changes: Vec<ExplainChange>,
}

/// Nodes with the same result.
#[derive(Debug, Deserialize, JsonSchema)]
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
}

/// Excluded nodes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Barred {
    /// Why.
    pub(crate) why: String,
    /// The nodes.
    pub(crate) nodes: Vec<String>,
}

/// A change that would let the pod run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainChange {
    /// What to change.
    pub(crate) change: String,
    /// The number of nodes where it fits then.
    pub(crate) nodes: u64,
}

/// `kubectl dranet verify -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verify {
    /// Pods that have GPUs and NICs.
    pub(crate) pods: Vec<Verified>,
}

/// A pod that has GPUs and NICs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verified {
    /// Namespace and name.
    pub(crate) pod: String,
    /// Its node.
    pub(crate) node: String,
    /// What it has.
    pub(crate) pairs: Vec<VerifiedPair>,
    /// The farthest path that its annotations allow.
    pub(crate) promised: Option<String>,
    /// The farthest path of the same claims on the empty node.
    pub(crate) possible: Option<String>,
    /// Whether a pair is farther than promised.
    pub(crate) worse: bool,
    /// A text for each NIC that carries less than it could.
    pub(crate) degraded: Vec<String>,
}

/// A GPU and a NIC of a pod.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct VerifiedPair {
    /// The GPU.
    pub(crate) gpu: String,
    /// The NIC.
    pub(crate) nic: String,
    /// The path between them.
    pub(crate) path: String,
    /// Whether the NIC can reach the GPU's memory; null without `--gpudirect`.
    pub(crate) gpu_direct: Option<GpuDirect>,
}

/// Whether a NIC can reach a GPU's memory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct GpuDirect {
    /// `ok`, `degraded-link`, `acs-redirect`, `ats-missing`, `iommu`, `no-peer-memory` or
    /// `unknown`.
    pub(crate) verdict: String,
    /// The facts behind the verdict.
    pub(crate) evidence: String,
    /// Why it cannot; null if nothing blocks it.
    pub(crate) why: Option<String>,
    /// What to change.
    pub(crate) what_to_do: Option<String>,
}

/// `kubectl dranet capacity -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Capacity {
    /// One for each requested shape.
    pub(crate) shapes: Vec<CapacityShape>,
    /// The largest pod with as many NICs as GPUs that fits now.
    pub(crate) largest: Option<String>,
}

/// How many pods of a shape fit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CapacityShape {
    /// The shape, as `1gpu:2nic`.
    pub(crate) shape: String,
    /// Why admission denies such pods.
    pub(crate) denied: Option<String>,
    /// How many fit now.
    pub(crate) fit_now: u64,
    /// How many would fit with nothing in use.
    pub(crate) fit_empty: u64,
    /// The driver of the GPUs, in a cluster with several.
    pub(crate) gpu_driver: Option<String>,
    /// The same by machine type and fabric.
    pub(crate) rooms: Vec<CapacityRoom>,
    /// What would have to move for one to fit.
    pub(crate) to_move: Option<ToMove>,
}

/// The nodes of a machine type on a fabric.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CapacityRoom {
    /// The machine type, otherwise its shape.
    pub(crate) machine: String,
    /// The fabric.
    pub(crate) fabric: Option<String>,
    /// How many nodes.
    pub(crate) nodes: u64,
    /// How many pods fit now.
    pub(crate) fit_now: u64,
    /// How many would fit with nothing in use.
    pub(crate) fit_empty: u64,
}

/// Claims that would have to leave a node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToMove {
    /// The node.
    pub(crate) node: String,
    /// The fewest claims.
    pub(crate) claims: Vec<String>,
}

/// `kubectl dranet simulate -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Simulate {
    /// The pods that are placed, in their order.
    pub(crate) placed: Vec<Placed>,
    /// The others.
    pub(crate) pending: Vec<Pending>,
    /// Ignored rules of workloads whose pods are placed.
    pub(crate) remarks: Vec<Remark>,
}

/// Ignored rules of a workload.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remark {
    /// Kind and name of the workload.
    pub(crate) pod: String,
    /// Which rules.
    pub(crate) remark: String,
}

/// Where a pod is placed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Placed {
    /// Namespace and name.
    pub(crate) pod: String,
    /// Its node.
    pub(crate) node: String,
    /// The machine type, otherwise its shape.
    pub(crate) machine: String,
    /// The fabric of the node.
    pub(crate) fabric: Option<String>,
    /// The farthest of its pairs of GPU and NIC.
    pub(crate) path: Option<String>,
    /// The score of scheduler-ext for the node.
    pub(crate) score: Option<i64>,
    /// Nodes with the same score.
    pub(crate) equal_nodes: Vec<String>,
    /// What it gets.
    pub(crate) devices: Vec<Device>,
}

/// A device.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Device {
    /// The driver.
    pub(crate) driver: String,
    /// The pool.
    pub(crate) pool: String,
    /// The device.
    #[serde(rename = "device")]
    pub(crate) name: String,
}

/// Pods of one origin that stay pending.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pending {
    /// The pods, with their namespace.
    pub(crate) pods: Vec<String>,
    /// What `explain` reports about the first.
    pub(crate) why: Explain,
}

/// `kubectl dranet bench -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Bench {
    /// The first pod: it is written to, or runs `mpirun`.
    pub(crate) server: BenchEnd,
    /// The second pod.
    pub(crate) client: BenchEnd,
    /// Bytes of a message; of the data of an NCCL test.
    pub(crate) message_bytes: u64,
    /// Bandwidth in gigabits per second; of an NCCL test the bus bandwidth.
    pub(crate) measured_gbps: f64,
    /// What the links of the slower pod carry, if known: those of its first NIC, for an NCCL test
    /// those of all its NICs.
    pub(crate) promised_gbps: Option<f64>,
    /// The measured percentage of it.
    pub(crate) percent: Option<f64>,
}

/// One end of a measurement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct BenchEnd {
    /// Its node.
    pub(crate) node: String,
    /// The NICs of its claim.
    pub(crate) nics: Vec<BenchNic>,
}

/// A NIC of a measurement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct BenchNic {
    /// The name of the device.
    pub(crate) name: String,
    /// Rate of its port.
    pub(crate) port_gbps: Option<f64>,
    /// Rate of its PCIe link at its current speed and width.
    pub(crate) pcie_gbps: Option<f64>,
}

/// `kubectl dranet lint -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lint {
    /// The objects that were checked.
    pub(crate) claims: Vec<Linted>,
}

/// A claim, a template or a pod.
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// It does less than it seems to.
    Note,
    /// It works now, but will not always work.
    Warning,
    /// It does not work.
    Error,
}

/// What is wrong with a claim, a template or a pod.
#[derive(Debug, Deserialize, JsonSchema)]
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

/// `kubectl dranet doctor -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Doctor {
    /// Version of the API server.
    pub(crate) server: Option<String>,
    /// Number of nodes.
    pub(crate) nodes: u64,
    /// Those with GPUs of a DRA driver.
    pub(crate) with_gpus: u64,
    /// Those with NICs.
    pub(crate) with_nics: u64,
    /// Those with a graph.
    pub(crate) with_graph: u64,
    /// The machine types with both.
    pub(crate) machines: Vec<DoctorMachine>,
    /// Numbers of nodes by the mode of their RDMA subsystem, `shared` or `exclusive`.
    pub(crate) rdma_namespace_modes: BTreeMap<String, u64>,
    /// What was checked.
    pub(crate) checks: Vec<DoctorCheck>,
    /// Problems to fix.
    pub(crate) findings: Vec<DoctorFinding>,
}

/// A machine type.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DoctorMachine {
    /// Its name, otherwise its shape.
    pub(crate) name: String,
    /// How many nodes.
    pub(crate) nodes: u64,
    /// GPUs of each.
    pub(crate) gpus: u64,
    /// NICs of each.
    pub(crate) nics: u64,
    /// The join of a pod with one GPU and one NIC.
    pub(crate) join: Option<String>,
    /// Why there is none.
    pub(crate) denied: Option<String>,
}

/// A check.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DoctorCheck {
    /// What is checked.
    pub(crate) name: String,
    /// `passed`, `failed` or `skipped`.
    pub(crate) state: String,
    /// Why it was skipped.
    pub(crate) why: Option<String>,
    /// The page of the documentation about what it finds.
    pub(crate) page: String,
}

/// A problem to fix.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DoctorFinding {
    /// Its severity.
    pub(crate) severity: Severity,
    /// Which object, or which nodes.
    pub(crate) place: String,
    /// What is wrong, and what to do.
    pub(crate) message: String,
}

/// `kubectl dranet fabric -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names are those of the JSON")]
pub(crate) struct Fabrics {
    /// The fabrics.
    pub(crate) fabrics: Vec<Fabric>,
    /// Groups that wait for one.
    pub(crate) waiting: Vec<WaitingGroup>,
    /// Fabrics and domains that another source divides.
    pub(crate) conflicts: Vec<SourceConflict>,
}

/// A fabric, or a domain of a level, that another source divides.
#[derive(Debug, Deserialize, JsonSchema)]
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

/// A fabric.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Fabric {
    /// Its name.
    pub(crate) name: String,
    /// Its nodes.
    pub(crate) nodes: u64,
    /// Nodes with nothing in use.
    pub(crate) nodes_free: u64,
    /// Free GPUs.
    pub(crate) gpus_free: u64,
    /// Free NICs.
    pub(crate) nics_free: u64,
}

/// A group that waits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitingGroup {
    /// Its namespace and the value of the label `dranet.io/fabric-group` of its pods.
    pub(crate) name: String,
    /// What people call it: kind, namespace and name of its job.
    pub(crate) job: String,
    /// Pods that wait.
    pub(crate) pods: u64,
    /// Why.
    pub(crate) why: String,
    /// How many of them fit on each fabric now.
    pub(crate) places: BTreeMap<String, u64>,
}

/// `kubectl dranet top -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Top {
    /// Nodes with GPUs or NICs.
    pub(crate) nodes: Vec<TopNode>,
}

/// A node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TopNode {
    /// Its name.
    pub(crate) name: String,
    /// The machine type, otherwise its shape.
    pub(crate) machine: String,
    /// Its fabric.
    pub(crate) fabric: Option<String>,
    /// Its GPUs.
    pub(crate) gpus: Amount,
    /// Its NICs.
    pub(crate) nics: Amount,
    /// NUMA nodes with GPUs and NICs, all of them free.
    pub(crate) whole_cells: Option<u64>,
    /// A text for each NIC that is down or degraded, and for each tainted device.
    pub(crate) ports: Vec<String>,
    /// Why it takes no pods: `cordoned`, `not ready`.
    pub(crate) closed: Option<String>,
}

/// `kubectl dranet pools -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pools {
    /// The NicPools.
    pub(crate) pools: Vec<Pool>,
}

/// A NicPool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// Its name.
    pub(crate) name: String,
    /// NICs that the pool has addresses for.
    pub(crate) size: u64,
    /// NICs that have addresses from the pool.
    pub(crate) used: u64,
    /// NICs that can still get addresses.
    pub(crate) free: u64,
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
#[derive(Debug, Deserialize, JsonSchema)]
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

/// How many are free, and how many there are.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Amount {
    /// Those that are free.
    pub(crate) free: u64,
    /// Those that are down, degraded or tainted.
    pub(crate) unusable: u64,
    /// All.
    pub(crate) all: u64,
}

/// `kubectl dranet version -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Diff {
    /// The objects that differ.
    pub(crate) objects: Vec<Different>,
}

/// An object that differs.
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FieldChange {
    /// Where it is.
    pub(crate) path: String,
    /// Its value before.
    pub(crate) before: Value,
    /// Its value after.
    pub(crate) after: Value,
}

/// `kubectl dranet migrate -o json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Migrate {
    /// Values of the chart.
    pub(crate) values: Object,
    /// Objects to apply.
    pub(crate) documents: Vec<Object>,
    /// What has no counterpart.
    pub(crate) notes: Vec<MigrateNote>,
}

/// What has no counterpart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrateNote {
    /// The object.
    pub(crate) object: String,
    /// What to know about it.
    pub(crate) note: String,
}
