//! What keeps a pod off a node besides its claims and its own selectors: readiness, taints, room for
//! its requests, and the fabric of its group. `explain` and `simulate` ask the same questions.

use crate::extended::Extended;
use cluster_model::names::label;
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use fabric_controller::nodes::{NodeInfo, Nodes, UNSCHEDULABLE};
use fabric_controller::pods::Pods;
use fabric_controller::requirements::PodRequirements;

/// Why a node is left out by the pod's own selectors.
pub(crate) const NOT_SELECTED: &str = "excluded by the pod's nodeSelector or node affinity";

/// The nodes, and the pods on them.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    pub(crate) pods: Pods,
    pub(crate) nodes: Nodes,
}

/// What a pod needs from a node besides its claims.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) own: PodRequirements,
    /// Extended resources that claims can stand for.
    pub(crate) extended: Option<Extended>,
    /// The fabric that is chosen for the pod's group.
    pub(crate) fabric: Option<String>,
}

impl Barriers {
    /// Returns why a pod cannot start on a node now, whatever devices are free there.
    pub(crate) fn keeps_off(
        &self,
        view: &ClusterView,
        (placement, needs): (&Placement, &Needs),
        node: &str,
    ) -> Option<String> {
        if !placement.allows(view, node) {
            return Some(NOT_SELECTED.to_owned());
        }
        self.bar(view, needs, node)
    }

    /// Returns why a node is excluded; `None` if it is not.
    pub(crate) fn bar(&self, view: &ClusterView, needs: &Needs, node: &str) -> Option<String> {
        if let Some(fabric) = &needs.fabric {
            let labels = view.inventory().node(node).map(|node| &node.labels);
            let own = labels.and_then(|labels| labels.get(label::NODE_FABRIC));
            if own.is_none_or(|own| **own != **fabric) {
                return Some(format!("not on fabric {fabric}, which is chosen for the group"));
            }
        }
        let facts = self.nodes.get(node)?;
        closed(facts, &needs.own).or_else(|| self.short(facts, needs, node))
    }

    /// Returns which of the pod's requests the node has no room for.
    fn short(&self, facts: &NodeInfo, needs: &Needs, node: &str) -> Option<String> {
        // Nothing is known about nodes that are written by hand or remembered.
        if facts.allocatable.is_empty() {
            return None;
        }
        let mut free = facts.allocatable.clone();
        let usage = self.pods.usage(node);
        if let Some(usage) = usage {
            free.subtract(&usage.amounts, 1);
        }
        if facts.pods == 0 {
            return Some("has no room for pods: its allocatable `pods` is 0 or missing".to_owned());
        }
        if usage.map_or(0, |usage| usage.pods) >= facts.pods {
            return Some("runs its maximum number of pods".to_owned());
        }
        let by_claim = needs.extended.as_ref().map(|it| it.missing_on(facts)).unwrap_or_default();
        let requests = needs.own.requests.without(&by_claim);
        let name = requests.first_short(&free)?;
        let requests_more = requests.units(name) > facts.allocatable.units(name);
        Some(if requests_more {
            format!("has too little `{name}`, also when it is empty")
        } else {
            format!("has too little `{name}` free")
        })
    }
}

/// Returns why a node takes no such pods.
fn closed(facts: &NodeInfo, needs: &PodRequirements) -> Option<String> {
    let tolerations = &needs.tolerations;
    match facts.untolerated(tolerations) {
        _ if facts.not_ready.is_some() => {
            let since = facts.not_ready.as_deref().unwrap_or_default();
            let since = if since.is_empty() { String::new() } else { format!(" since {since}") };
            Some(format!("is not ready{since}"))
        }
        Some(UNSCHEDULABLE) => {
            Some("is cordoned; `kubectl uncordon` lets pods on it again".to_owned())
        }
        Some(taint) => Some(format!("has the taint {taint}, which the pod does not tolerate")),
        None => None,
    }
}
