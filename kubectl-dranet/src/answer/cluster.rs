//! Answers about the cluster: `capacity`, `simulate`, `doctor` and `top`.

use super::{Barred, Evicted, Explain, Severity};
#[cfg(test)]
use schemars::JsonSchema;
#[cfg(test)]
use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;
use topology_graph::PathKind;

/// `kubectl dranet capacity -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Capacity {
    /// One for each requested shape.
    pub(crate) shapes: Vec<CapacityShape>,
    /// The largest pod with as many NICs as GPUs that fits now.
    pub(crate) largest: Option<String>,
    /// Nodes on which no pod fits now, and why.
    #[serde(default, rename = "leftOut", skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<Barred>,
}

/// How many pods of a shape fit.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CapacityShape {
    /// The shape, as `1gpu:2nic`.
    pub(crate) shape: String,
    /// Why admission denies such pods.
    pub(crate) denied: Option<String>,
    /// How many fit now.
    pub(crate) fit_now: usize,
    /// How many would fit with nothing in use.
    pub(crate) fit_empty: usize,
    /// Where nodes bind NICs late: how many that fit now find near NICs whatever GPUs the kubelet chooses;
    /// otherwise null.
    pub(crate) surely_near: Option<usize>,
    /// The driver of the GPUs, in a cluster with several.
    pub(crate) gpu_driver: Option<String>,
    /// The same by machine type and fabric.
    pub(crate) rooms: Vec<CapacityRoom>,
    /// What would have to move for one to fit.
    pub(crate) to_move: Option<ToMove>,
}

/// The nodes of a machine type on a fabric.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CapacityRoom {
    /// The machine type, otherwise its shape.
    pub(crate) machine: String,
    /// The fabric.
    pub(crate) fabric: Option<String>,
    /// How many nodes.
    pub(crate) nodes: usize,
    /// How many pods fit now.
    pub(crate) fit_now: usize,
    /// How many would fit with nothing in use.
    pub(crate) fit_empty: usize,
    /// How many that fit now surely find near NICs; null if no node binds NICs late.
    pub(crate) surely_near: Option<usize>,
}

/// Claims that would have to leave a node.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ToMove {
    /// The node.
    pub(crate) node: String,
    /// The fewest claims.
    pub(crate) claims: Vec<String>,
}

/// `kubectl dranet simulate -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Simulate {
    /// The pods that are placed, in their order.
    pub(crate) placed: Vec<Placed>,
    /// The others.
    pub(crate) pending: Vec<Pending>,
    /// Ignored rules of workloads whose pods are placed.
    pub(crate) remarks: Vec<Remark>,
    /// What may make the scheduler choose other nodes, and is not known here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<Unknown>,
}

/// What `simulate` does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unknown {
    /// What the running scheduler-ext has learned from pods that are gone: its scores may differ.
    LearnedShapes,
    /// Which of the nodes kube-scheduler looks at: in a large cluster it looks at some.
    ExaminedNodes,
    /// Whether the scheduler that a pod names runs, and what it does.
    OtherScheduler,
    /// When kube-scheduler tries a pod again to which others have given way: it may be five minutes.
    TriedAgain,
    /// How long pods take to end that are being deleted already, and give way to a pod.
    EndingPods,
}

/// Ignored rules of a workload.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Remark {
    /// Kind and name of the workload.
    pub(crate) pod: String,
    /// Which rules.
    pub(crate) remark: String,
}

/// Where a pod is placed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
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
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) path: Option<PathKind>,
    /// On a node that binds NICs late, for how many eighths of the choices of GPUs NICs are free that are
    /// as near as the pod asks for, as scheduler-ext forecasts; null on others.
    pub(crate) near_eighths: Option<u32>,
    /// The score of scheduler-ext for the node.
    pub(crate) score: Option<i64>,
    /// The nodes that kube-scheduler may prefer as much as this one, by its own scores and those of
    /// scheduler-ext; it chooses one of them.
    pub(crate) equal_nodes: Vec<String>,
    /// Pods of lower priority that kube-scheduler evicts for it, by namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) evicts: Vec<String>,
    /// The taint that evicts it after it is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) evicted: Option<Evicted>,
    /// Conditions of its devices that must be true before it is bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) binds_after: Vec<String>,
    /// What it gets.
    pub(crate) devices: Vec<Device>,
    /// What is not known of when it is bound, after others have given way to it.
    #[serde(skip)]
    pub(crate) delay: Option<Unknown>,
    /// Whether it fits on other nodes as well.
    #[serde(skip)]
    pub(crate) has_choice: bool,
    /// Whether kube-scheduler looks only at some of the nodes on which it fits.
    #[serde(skip)]
    pub(crate) is_sampled: bool,
    /// The number of GPUs that the node's device plugin gives it.
    #[serde(skip)]
    pub(crate) plugin_gpus: usize,
}

/// A device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
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
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Pending {
    /// The pods, with their namespace.
    pub(crate) pods: Vec<String>,
    /// What `explain` reports about the first.
    pub(crate) why: Explain,
}

/// `kubectl dranet doctor -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Doctor {
    /// Whether any part of the project is installed; null if that is not known.
    pub(crate) installed: Option<bool>,
    /// Kinds that the user may not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unread: Vec<String>,
    /// Version of the API server.
    pub(crate) server: Option<String>,
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Those with GPUs of a DRA driver.
    pub(crate) with_gpus: usize,
    /// Those with NICs.
    pub(crate) with_nics: usize,
    /// Those with a graph.
    pub(crate) with_graph: usize,
    /// The machine types with both.
    pub(crate) machines: Vec<DoctorMachine>,
    /// Numbers of nodes by the mode of their RDMA subsystem, `shared` or `exclusive`.
    pub(crate) rdma_namespace_modes: BTreeMap<String, usize>,
    /// What was checked.
    pub(crate) checks: Vec<DoctorCheck>,
    /// Problems to fix.
    pub(crate) findings: Vec<DoctorFinding>,
}

/// A machine type.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct DoctorMachine {
    /// Its name, otherwise its shape.
    pub(crate) name: String,
    /// How many nodes.
    pub(crate) nodes: usize,
    /// GPUs of each.
    pub(crate) gpus: usize,
    /// NICs of each.
    pub(crate) nics: usize,
    /// The join of a pod with one GPU and one NIC.
    pub(crate) join: Option<String>,
    /// Why there is none.
    pub(crate) denied: Option<String>,
    /// What would give it a join that holds on machines that are not known yet.
    #[serde(skip)]
    pub(crate) better: Option<String>,
}

/// A check.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct DoctorCheck {
    /// What is checked.
    pub(crate) name: String,
    /// `passed`, `failed` or `skipped`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) state: CheckState,
    /// Why it was skipped.
    pub(crate) why: Option<String>,
    /// The page of the documentation about what it finds.
    pub(crate) page: String,
    /// How many of its findings need fixing.
    #[serde(skip)]
    pub(crate) failures: usize,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckState {
    /// It found nothing, or notes only.
    Passed,
    /// It found what needs fixing.
    Failed,
    /// It was not made.
    Skipped,
}

/// A problem to fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct DoctorFinding {
    /// Its severity.
    pub(crate) severity: Severity,
    /// Which object, or which nodes.
    pub(crate) place: String,
    /// What is wrong, and what to do.
    pub(crate) message: String,
}

/// `kubectl dranet top -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Top {
    /// Nodes with GPUs or NICs.
    pub(crate) nodes: Vec<TopNode>,
}

/// A node.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
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
    /// Its NICs. Virtual functions of one port are one NIC.
    pub(crate) nics: NicAmount,
    /// NUMA nodes with GPUs and NICs, all of them free.
    pub(crate) whole_cells: Option<usize>,
    /// Whether its NICs are places, each of which stands for any NIC until a pod starts.
    pub(crate) binds_late: bool,
    /// A text for each NIC that is down or degraded, and for each tainted device.
    pub(crate) ports: Vec<String>,
    /// Why it takes no pods: `cordoned`, `not ready`.
    pub(crate) closed: Option<String>,
    /// Pods with devices of it whose priority is lower than that of a pod that waits for devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lower: Vec<LowerHolder>,
}

/// A pod that has devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct LowerHolder {
    /// Its namespace and name.
    pub(crate) pod: String,
    /// Its priority.
    pub(crate) priority: i32,
}

/// How many NICs are free, and how many there are.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct NicAmount {
    /// Those that are not in use at all.
    pub(crate) free: usize,
    /// Those of which claims hold parts that leave something for others.
    pub(crate) partly: usize,
    /// Those that are down, degraded or tainted.
    pub(crate) unusable: usize,
    /// All.
    pub(crate) all: usize,
    /// The same in functions, if a port has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) functions: Option<Amount>,
}

/// How many are free, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Amount {
    /// Those that are not in use at all.
    pub(crate) free: usize,
    /// Those of which claims hold parts that leave something for others.
    pub(crate) partly: usize,
    /// Those that are down, degraded or tainted.
    pub(crate) unusable: usize,
    /// All.
    pub(crate) all: usize,
}

/// `kubectl dranet machines -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Machines {
    /// The known machine types.
    pub(crate) machines: Vec<KnownMachine>,
}

/// A machine type.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownMachine {
    /// Its name.
    pub(crate) name: String,
    /// The nodes of this type in the cluster: 0 if it is only remembered, null if it is built in.
    pub(crate) nodes: Option<usize>,
    /// GPUs of a node.
    pub(crate) gpus: usize,
    /// NICs of a node.
    pub(crate) nics: usize,
    /// The drivers that publish devices of a node.
    pub(crate) drivers: Vec<String>,
}
