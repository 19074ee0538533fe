//! What a node says of itself besides its labels, which the view has: its resources and taints.

use super::amounts::Amounts;
use super::why_not::WhyNot;
use crate::closed::{Closed, NOT_READY, UNREACHABLE, UNSCHEDULABLE, readiness};
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

/// The resource that counts pods.
const PODS: &str = "pods";

/// Resources and taints of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Total resources for pods; `None` if nothing is known about them.
    pub allocatable: Option<Amounts>,
    /// The most pods that may run.
    pub pods: i64,
    /// The time since when the node is not ready; empty if that is unknown. `None` if it is ready.
    pub not_ready: Option<Box<str>>,
    /// Taints that keep pods away: key, value, effect.
    taints: Vec<NodeTaint>,
    /// Taints with which other nodes are preferred.
    soft_taints: Vec<NodeTaint>,
}

type NodeTaint = (Box<str>, Box<str>, Box<str>);

impl NodeFacts {
    /// Reads a node as kube-scheduler does: without `status.allocatable`, it has room for nothing.
    pub fn new(node: &Node) -> Self {
        let list = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let pods = list.and_then(|all| all.get(PODS)?.0.parse().ok()).unwrap_or(0);
        let (ready, not_ready) = (readiness_taint(node), not_ready(node));
        let spec = node.spec.as_ref();
        let cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
        let cordon = cordoned.then(|| (UNSCHEDULABLE.into(), "".into(), NO_SCHEDULE.into()));
        let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let soft = taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        Self {
            allocatable: Some(Amounts::new(list)),
            pods,
            not_ready,
            // In the order of the filters: `NodeUnschedulable` comes first.
            taints: cordon
                .into_iter()
                .chain(ready)
                .chain(taints.iter().filter(|taint| keeps_away(taint)).map(node_taint))
                .collect(),
            soft_taints: soft.map(node_taint).collect(),
        }
    }

    /// The same for a node of a file, which somebody may have written: without `status.allocatable`,
    /// nothing is known about its resources, unless the API server wrote the status.
    pub fn of_file(node: &Node) -> Self {
        let facts = Self::new(node);
        let is_whole = node.status.as_ref().is_some_and(|status| status.node_info.is_some());
        let is_known =
            is_whole || facts.allocatable.as_ref().is_some_and(|amounts| !amounts.is_empty());
        Self { allocatable: facts.allocatable.filter(|_| is_known), ..facts }
    }

    /// Why the node takes no new pods.
    pub fn closed(&self) -> Option<Closed> {
        self.taints.iter().filter_map(|(key, _, _)| Closed::by_taint(key)).max()
    }

    /// Removes the taint of a cordoned node.
    pub(super) fn uncordon(&mut self) {
        self.taints.retain(|(key, _, _)| **key != *UNSCHEDULABLE);
    }

    /// The total amount of a resource in whole units; 0 if nothing is known about it.
    pub fn units(&self, resource: &str) -> i64 {
        self.allocatable.as_ref().map_or(0, |amounts| amounts.units(resource))
    }

    /// The first taint that no toleration covers.
    pub fn untolerated(&self, tolerations: &[Tolerated]) -> Option<&str> {
        let taints = self.taints.iter();
        let mut untolerated = taints.filter(|taint| !tolerations.iter().any(|it| it.covers(taint)));
        untolerated.next().map(|(key, _, _)| &**key)
    }

    /// How many taints make other nodes preferred for pods with these tolerations
    /// (`plugins/tainttoleration`).
    pub fn soft_taints(&self, tolerations: &[Tolerated]) -> usize {
        let taints = self.soft_taints.iter();
        taints.filter(|taint| !tolerations.iter().any(|it| it.covers(taint))).count()
    }

    /// The shortest time in seconds for which tolerations cover a taint that ends pods, with its key; `None`
    /// if they are for ever (`getMinTolerationTime` in `pkg/controller/tainteviction`).
    pub(super) fn tolerated_for(&self, tolerations: &[Tolerated]) -> Option<(&str, i64)> {
        let evicting = self.taints.iter().filter(|(_, _, effect)| **effect == *NO_EXECUTE);
        let times = evicting.filter_map(|taint| {
            let own = tolerations.iter().find(|it| it.covers(taint))?;
            Some((&*taint.0, own.seconds?.max(0)))
        });
        times.min_by_key(|(_, seconds)| *seconds)
    }

    /// Why a pod with these tolerations is kept off by taints.
    pub(super) fn kept_off(&self, tolerations: &[Tolerated]) -> Option<WhyNot> {
        Some(match self.untolerated(tolerations)? {
            NOT_READY | UNREACHABLE if let Some(since) = &self.not_ready => {
                WhyNot::NotReady { since: since.clone() }
            }
            UNSCHEDULABLE => WhyNot::Cordoned,
            key => WhyNot::Tainted { key: key.into() },
        })
    }
}

/// Taints with this effect end pods that have their devices or node already.
pub(super) const NO_EXECUTE: &str = "NoExecute";

const NO_SCHEDULE: &str = "NoSchedule";

fn keeps_away(taint: &Taint) -> bool {
    matches!(&*taint.effect, NO_SCHEDULE | NO_EXECUTE)
}

fn node_taint(taint: &Taint) -> NodeTaint {
    let value = taint.value.as_deref().unwrap_or_default();
    (taint.key.as_str().into(), value.into(), taint.effect.as_str().into())
}

/// The taint that the control plane adds to a node that is not ready, a moment later than the
/// condition.
fn readiness_taint(node: &Node) -> Option<NodeTaint> {
    let key = if readiness(node)?.status == "Unknown" { UNREACHABLE } else { NOT_READY };
    Some((key.into(), "".into(), NO_SCHEDULE.into()))
}

/// Since when the condition `Ready` of a node is not true.
fn not_ready(node: &Node) -> Option<Box<str>> {
    let since = readiness(node)?.last_transition_time.as_ref();
    Some(since.map(|time| time.0.to_string()).unwrap_or_default().into())
}

/// A toleration, reduced to the fields that matter for scheduling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tolerated {
    key: Box<str>,
    /// `None` matches any value.
    value: Option<Box<str>>,
    effect: Box<str>,
    /// For how long it tolerates a taint that ends pods; `None` is for ever.
    seconds: Option<i64>,
}

impl Tolerated {
    /// Parses a toleration. `None` if the operator is unknown: it tolerates nothing.
    pub fn new(wire: &Toleration) -> Option<Self> {
        let value = match wire.operator.as_deref() {
            Some("Exists") => None,
            None | Some("" | "Equal") => Some(wire.value.as_deref().unwrap_or_default().into()),
            Some(_) => return None,
        };
        Some(Self {
            key: wire.key.as_deref().unwrap_or_default().into(),
            value,
            effect: wire.effect.as_deref().unwrap_or_default().into(),
            seconds: wire.toleration_seconds,
        })
    }

    /// A toleration of every taint.
    pub(super) fn everything() -> Self {
        Self { key: "".into(), value: None, effect: "".into(), seconds: None }
    }

    /// As `ToleratesTaint` in `k8s.io/component-helpers/scheduling/corev1`.
    fn covers(&self, (key, value, effect): &NodeTaint) -> bool {
        (self.effect.is_empty() || self.effect == *effect)
            && (self.key.is_empty() || self.key == *key)
            && self.value.as_ref().is_none_or(|own| own == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn untolerated_taints_keep_pods_away() {
        let gpu = json!([{"key": "sku", "value": "gpu", "effect": "NoSchedule"}]);
        let soft = json!([{"key": "sku", "effect": "PreferNoSchedule"}]);
        for (taints, cordoned, tolerations, expected) in [
            (Value::Null, false, json!([]), None),
            (soft, false, json!([]), None),
            (gpu.clone(), false, json!([]), Some("sku")),
            (gpu.clone(), false, json!([{"key": "sku", "value": "gpu"}]), None),
            (gpu.clone(), false, json!([{"key": "sku", "value": "cpu"}]), Some("sku")),
            (gpu.clone(), false, json!([{"key": "sku", "operator": "Exists"}]), None),
            (gpu.clone(), false, json!([{"operator": "Exists"}]), None),
            (gpu.clone(), false, json!([{"key": "sku", "operator": "Lt"}]), Some("sku")),
            (gpu, false, json!([{"operator": "Exists", "effect": "NoExecute"}]), Some("sku")),
            (Value::Null, true, json!([]), Some(UNSCHEDULABLE)),
            (Value::Null, true, json!([{"key": UNSCHEDULABLE, "operator": "Exists"}]), None),
        ] {
            let node = json!({"spec": {"taints": taints, "unschedulable": cordoned}});
            let facts = NodeFacts::new(&serde_json::from_value(node.clone()).unwrap());
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            let tolerations: Vec<_> = tolerations.iter().filter_map(Tolerated::new).collect();
            assert_eq!(facts.untolerated(&tolerations), expected, "{node} {tolerations:?}");
        }
    }

    #[test]
    fn taints_with_which_other_nodes_are_preferred_are_counted() {
        let taints = json!([
            {"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "effect": "PreferNoSchedule"},
            {"key": "c", "effect": "NoSchedule"},
        ]);
        let node = json!({"spec": {"taints": taints}});
        let facts = NodeFacts::new(&serde_json::from_value(node).unwrap());
        for (tolerations, expected) in [
            (json!([]), 2),
            (json!([{"key": "a", "operator": "Exists"}]), 1),
            (json!([{"operator": "Exists", "effect": "NoSchedule"}]), 2),
            (json!([{"operator": "Exists"}]), 0),
        ] {
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            let tolerations: Vec<_> = tolerations.iter().filter_map(Tolerated::new).collect();
            assert_eq!(facts.soft_taints(&tolerations), expected, "{tolerations:?}");
        }
    }
}
