//! Answers about the cluster: `capacity`, `simulate`, `doctor` and `top`.

use super::{Explain, Severity};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

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
    /// On a node that binds NICs late, for how many eighths of the choices of GPUs NICs are free that are
    /// as near as the pod asks for, as scheduler-ext forecasts; null on others.
    pub(crate) near_eighths: Option<u32>,
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
    /// Its NICs. Virtual functions of one port are one NIC.
    pub(crate) nics: NicAmount,
    /// NUMA nodes with GPUs and NICs, all of them free.
    pub(crate) whole_cells: Option<u64>,
    /// Whether its NICs are places, each of which stands for any NIC until a pod starts.
    pub(crate) binds_late: bool,
    /// A text for each NIC that is down or degraded, and for each tainted device.
    pub(crate) ports: Vec<String>,
    /// Why it takes no pods: `cordoned`, `not ready`.
    pub(crate) closed: Option<String>,
}

/// How many NICs are free, and how many there are.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NicAmount {
    /// Those that are not in use at all.
    pub(crate) free: u64,
    /// Those of which claims hold parts that leave something for others.
    pub(crate) partly: u64,
    /// Those that are down, degraded or tainted.
    pub(crate) unusable: u64,
    /// All.
    pub(crate) all: u64,
    /// The same in functions, if a port has several.
    pub(crate) functions: Option<Amount>,
}

/// How many are free, and how many there are.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Amount {
    /// Those that are not in use at all.
    pub(crate) free: u64,
    /// Those of which claims hold parts that leave something for others.
    pub(crate) partly: u64,
    /// Those that are down, degraded or tainted.
    pub(crate) unusable: u64,
    /// All.
    pub(crate) all: u64,
}
