//! Pages about a pod's answer and about a node.

use crate::answer::{Answer, Reason, Scored};
use crate::expected::Expected;
use crate::learn;
use crate::score::{Cost, Gets};
use cluster_model::node_devices::{NodeDevice, Role};
use cluster_model::view::{ClusterView, ObjectKey};
use serde::Serialize;

/// All nodes of a pod's latest answer, best first.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct PodPage {
    rows: Vec<Row>,
}

/// A node: its devices, its score for a standard pod, and its scores for recent pods.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePage {
    node: String,
    fabric: Option<String>,
    devices: Vec<Device>,
    standard_pod: StandardPod,
    room: Vec<ShapeRoom>,
    /// Its scores for the pods that the scheduler asked about most recently.
    pods: Vec<Row>,
}

/// A pod with the most common claim of the cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StandardPod {
    /// An existing claim with the same requests.
    claim: Option<String>,
    /// The score compared with all nodes of the cluster.
    score: Option<Row>,
    /// Number of nodes with a higher score.
    better_nodes: usize,
    /// Number of nodes compared.
    nodes: usize,
}

/// How many more pods of a shape fit on the node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShapeRoom {
    /// GPUs and NICs, `2x2`.
    shape: String,
    /// By level, near to far: how many pods could have each GPU and its NICs in one cell.
    pods: Vec<(String, u32)>,
}

/// The score of one node for a pod, with its components.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// The node or, on a node's page, the pod.
    of: String,
    score: i64,
    /// `predicted`, `likely` or `unknown`.
    basis: &'static str,
    alternative: Option<u32>,
    /// Eighths of the kubelet's choices of GPUs that leave the pod without near NICs, on a node that binds
    /// NICs late.
    missed: Option<u32>,
    /// As `missed`, added up over the levels that are nearer than asked for.
    missed_nearer: Option<u32>,
    path: Option<String>,
    /// GPUs of which other claims hold a part.
    shared: Option<u32>,
    degraded: Option<u32>,
    /// In thousandths of a device.
    loss: Option<u64>,
    /// As `loss`, for gangs that find enough whole nodes on the node's fabric.
    gangs: Option<u64>,
    /// Unused NICs that the pod would begin to use.
    nics: Option<u32>,
    left: Option<u32>,
    /// As `loss`, for pods that want all their devices in one cell.
    cells: Option<u64>,
    devices: Vec<String>,
    reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    id: String,
    address: Option<String>,
    kind: &'static str,
    holder: Option<String>,
}

impl PodPage {
    /// The page of an answer.
    pub fn new(answer: &Answer) -> Self {
        let mut rows: Vec<Row> =
            answer.nodes.iter().map(|scored| Row::new(scored.node.clone(), scored)).collect();
        rows.sort_by(|a, b| b.score.cmp(&a.score).then_with(|| a.of.cmp(&b.of)));
        Self { rows }
    }
}

impl NodePage {
    /// The page of a node; `None` if it has published neither GPUs nor NICs. `standard`
    /// is the answer for a standard pod, `last` the node's scores in recent answers.
    pub fn new(
        name: &str,
        view: &ClusterView,
        expected: &Expected,
        standard: &Answer,
        last: &[(ObjectKey, Scored)],
    ) -> Option<Self> {
        let devices: Vec<Device> = NodeDevice::all(view, name)
            .filter(|it| it.role != Role::Part)
            .map(|NodeDevice { device, role, address, .. }| Device {
                id: device.id().to_string(),
                address: address.map(|address| address.to_string()),
                kind: if role == Role::Gpu { "gpu" } else { "nic" },
                holder: view.inventory().holder(device.id()).map(ToString::to_string),
            })
            .collect();
        if devices.is_empty() {
            return None;
        }
        let pods = last.iter().map(|(pod, scored)| Row::new(pod.to_string(), scored)).collect();
        Some(Self {
            node: name.to_owned(),
            fabric: view.fabric(name).map(str::to_owned),
            devices,
            standard_pod: StandardPod::new(name, expected, standard),
            room: rooms(name, expected),
            pods,
        })
    }
}

impl StandardPod {
    fn new(node: &str, expected: &Expected, answer: &Answer) -> Self {
        let own = answer.nodes.iter().find(|scored| scored.node == node);
        let score = own.map(|scored| scored.score);
        let better = answer.nodes.iter().filter(|scored| Some(scored.score) > score);
        Self {
            claim: expected.standard().map(|standard| standard.key.to_string()),
            score: own.map(|scored| Row::new(node.to_owned(), scored)),
            better_nodes: better.count(),
            nodes: answer.nodes.len(),
        }
    }
}

fn rooms(node: &str, expected: &Expected) -> Vec<ShapeRoom> {
    let Some(room) = expected.room(node) else { return Vec::new() };
    let pods = expected.mix().shares().iter().filter(|(demand, _)| demand.nodes == 1);
    pods.map(|(demand, _)| ShapeRoom {
        shape: demand.to_string(),
        pods: learn::levels().zip(room.fits(*demand)).collect(),
    })
    .collect()
}

impl Row {
    fn new(of: String, scored: &Scored) -> Self {
        let (basis, known, reason) = match &scored.reason {
            Reason::Predicted(outcome, forecast) => ("predicted", Some((outcome, forecast)), None),
            Reason::Likely(outcome, forecast) => ("likely", Some((outcome, forecast)), None),
            Reason::Unknown(reason) => ("unknown", None, Some(reason.to_string())),
        };
        let row = Self {
            of,
            score: scored.score,
            basis,
            alternative: None,
            missed: None,
            missed_nearer: None,
            path: None,
            shared: None,
            degraded: None,
            loss: None,
            gangs: None,
            nics: None,
            left: None,
            cells: None,
            devices: Vec::new(),
            reason,
        };
        let Some((outcome, forecast)) = known else { return row };
        let devices = forecast.taken.iter().map(ToString::to_string).collect();
        // Without `..`, so that a new term is shown too.
        let Gets { alternative, at_start, farthest, shared, degraded } = outcome.gets;
        let Cost { loss, gangs, nics, left, cells } = outcome.cost;
        Self {
            alternative: Some(alternative),
            missed: at_start.map(|it| it.missed),
            missed_nearer: at_start.map(|it| it.nearer),
            path: farthest.map(|reach| reach.to_string()),
            shared: Some(shared),
            degraded: Some(degraded),
            loss: Some(loss),
            gangs: Some(gangs),
            nics: Some(nics),
            left: Some(left),
            cells: Some(cells),
            devices,
            ..row
        }
    }
}
