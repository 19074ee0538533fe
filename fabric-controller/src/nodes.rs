//! Facts about nodes besides their labels, which the view has.

use super::amounts::Amounts;
use k8s_openapi::api::core::v1::{Node, Toleration};
use std::collections::BTreeMap;

/// Taint of a cordoned node, which pods may tolerate (`plugins/nodeunschedulable`).
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The resource that counts pods.
const PODS: &str = "pods";

/// Resources and taints of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Total resources for pods.
    pub allocatable: Amounts,
    /// The most pods that may run.
    pub pods: usize,
    /// The time since when the node is not ready; empty if that is unknown. `None` if it is ready.
    /// The control plane taints such a node soon after.
    pub not_ready: Option<Box<str>>,
    /// Taints that keep pods away.
    taints: Vec<(Box<str>, Box<str>, Box<str>)>,
}

/// All nodes by name.
#[derive(Clone, Debug, Default)]
pub struct Nodes(BTreeMap<String, NodeInfo>);

impl Nodes {
    /// Adds or replaces a node. Returns true if anything changed.
    pub fn apply(&mut self, node: &Node) -> bool {
        let facts = NodeInfo::new(node);
        let name = node.metadata.name.clone().unwrap_or_default();
        let same = self.0.get(&name) == Some(&facts);
        self.0.insert(name, facts);
        !same
    }

    /// Removes a node.
    pub fn delete(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// One node.
    pub fn get(&self, name: &str) -> Option<&NodeInfo> {
        self.0.get(name)
    }

    /// Whether no node is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl NodeInfo {
    fn new(node: &Node) -> Self {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let pods = allocatable.and_then(|all| all.get(PODS)?.0.parse().ok()).unwrap_or(0);
        let spec = node.spec.as_ref();
        let cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
        let cordon = cordoned.then(|| (UNSCHEDULABLE.into(), "".into(), "NoSchedule".into()));
        let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        // Other effects only make a node less preferred.
        Self {
            allocatable: Amounts::new(allocatable),
            pods,
            not_ready: not_ready(node),
            taints: taints
                .iter()
                .filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"))
                .map(|taint| {
                    let value = taint.value.as_deref().unwrap_or_default();
                    (taint.key.as_str().into(), value.into(), taint.effect.as_str().into())
                })
                .chain(cordon)
                .collect(),
        }
    }

    /// Whether an operator has cordoned the node.
    pub fn is_cordoned(&self) -> bool {
        self.taints.iter().any(|(key, _, _)| **key == *UNSCHEDULABLE)
    }

    /// The first taint that no toleration covers.
    pub fn untolerated(&self, tolerations: &[Tolerated]) -> Option<&str> {
        let taints = self.taints.iter();
        let mut untolerated = taints.filter(|taint| !tolerations.iter().any(|it| it.covers(taint)));
        untolerated.next().map(|(key, _, _)| &**key)
    }
}

/// Since when the condition `Ready` of a node is not true.
fn not_ready(node: &Node) -> Option<Box<str>> {
    let conditions = node.status.as_ref()?.conditions.iter().flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let ready = ready.next().filter(|condition| condition.status != "True")?;
    let since = ready.last_transition_time.as_ref();
    Some(since.map(|time| time.0.to_string()).unwrap_or_default().into())
}

/// A toleration, reduced to the fields that matter for scheduling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tolerated {
    key: Box<str>,
    /// `None` matches any value.
    value: Option<Box<str>>,
    effect: Box<str>,
}

impl Tolerated {
    /// Parses a toleration. `None` if the operator is unknown: it tolerates nothing.
    pub fn new(wire: &Toleration) -> Option<Self> {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let value = match wire.operator.as_deref() {
            Some("Exists") => None,
            None | Some("" | "Equal") => Some(text(&wire.value)),
            Some(_) => return None,
        };
        Some(Self { key: text(&wire.key), value, effect: text(&wire.effect) })
    }

    /// As `ToleratesTaint` in `k8s.io/component-helpers/scheduling/corev1`.
    fn covers(&self, (key, value, effect): &(Box<str>, Box<str>, Box<str>)) -> bool {
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
            let facts = NodeInfo::new(&serde_json::from_value(node.clone()).unwrap());
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            let tolerations: Vec<_> = tolerations.iter().filter_map(Tolerated::new).collect();
            assert_eq!(facts.untolerated(&tolerations), expected, "{node} {tolerations:?}");
        }
    }
}
