//! Why a node takes no new pods, whatever they ask for: what an operator or the control plane says of it by a
//! taint that pods do not tolerate unless they serve the node, as those of DaemonSets do.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use std::fmt;

/// Taint of a cordoned node, which pods may tolerate (`plugins/nodeunschedulable`).
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Taints of a node whose condition `Ready` is not true (`pkg/controller/nodelifecycle`).
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Why a node takes no new pods, whatever they are. Of several reasons the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closed {
    /// An operator has cordoned it.
    Cordoned,
    /// It lacks memory, disk space or process numbers.
    UnderPressure,
    /// It is not ready, cannot be reached, or has no network.
    NotReady,
}

impl Closed {
    /// Why this node takes none; `None` if it takes pods.
    pub fn of(node: &Node) -> Option<Self> {
        let spec = node.spec.as_ref();
        let cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
        let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let keys = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let closed = keys.filter_map(|taint| Self::by_taint(&taint.key));
        let not_ready = readiness(node).map(|_| Self::NotReady);
        closed.chain(cordoned.then_some(Self::Cordoned)).chain(not_ready).max()
    }

    /// What a taint that keeps pods away says.
    pub(crate) fn by_taint(key: &str) -> Option<Self> {
        Some(match key {
            UNSCHEDULABLE => Self::Cordoned,
            "node.kubernetes.io/disk-pressure"
            | "node.kubernetes.io/memory-pressure"
            | "node.kubernetes.io/pid-pressure" => Self::UnderPressure,
            NOT_READY
            | UNREACHABLE
            | "node.kubernetes.io/network-unavailable"
            | "node.kubernetes.io/out-of-service"
            | "node.cloudprovider.kubernetes.io/shutdown"
            | "node.cloudprovider.kubernetes.io/uninitialized" => Self::NotReady,
            _ => return None,
        })
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "not ready",
            Self::UnderPressure => "under pressure",
            Self::Cordoned => "cordoned",
        })
    }
}

/// The condition `Ready` of a node, if it is not true.
pub(crate) fn readiness(node: &Node) -> Option<&NodeCondition> {
    let mut conditions = node.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|it| it.type_ == "Ready").filter(|it| it.status != "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn nodes_are_closed_by_cordons_conditions_and_taints() {
        let tainted = |key: &str, effect: &str| json!({ "spec": { "taints": [{ "key": key, "effect": effect }] } });
        let ready = |status: &str| json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        let cordoned = json!({ "spec": { "unschedulable": true } });
        let mut both = ready("False");
        both["spec"] = cordoned["spec"].clone();
        for (node, expected) in [
            (Value::Null, None),
            (ready("True"), None),
            (ready("False"), Some(Closed::NotReady)),
            (ready("Unknown"), Some(Closed::NotReady)),
            (cordoned, Some(Closed::Cordoned)),
            (both, Some(Closed::NotReady)),
            (tainted(NOT_READY, "NoSchedule"), Some(Closed::NotReady)),
            (tainted(UNREACHABLE, "NoExecute"), Some(Closed::NotReady)),
            (tainted(NOT_READY, "PreferNoSchedule"), None),
            (
                tainted("node.kubernetes.io/disk-pressure", "NoSchedule"),
                Some(Closed::UnderPressure),
            ),
            (tainted("sku", "NoSchedule"), None),
        ] {
            let node: Node = match node {
                Value::Null => Node::default(),
                node => serde_json::from_value(node).unwrap(),
            };
            assert_eq!(Closed::of(&node), expected, "{node:?}");
        }
    }
}
