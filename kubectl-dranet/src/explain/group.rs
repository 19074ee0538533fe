//! Changes that would let a whole group run. Each is tried on a copy of the cluster before it is named.

use super::Scene;
use super::changes::SHOWN_MAX;
use crate::answer::ExplainChange;
use crate::in_use::leave;
use cluster_model::closed::Closed;
use cluster_model::names::label;
use cluster_model::room::{NodeFacts, Nodes};
use cluster_model::view::{ClusterView, ObjectKey};
use fabric_controller::preview::GroupPreview;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// The most changes that are tried.
const TRIED_MAX: usize = 64;

/// Changes each of which alone would let the group run: cordoned nodes first, then other pods that end.
pub(super) fn changes(
    group: &GroupPreview,
    view: &ClusterView,
    scene: Scene<'_>,
) -> Vec<ExplainChange> {
    let own = &scene.in_use.nodes;
    let cordoned = view
        .present_nodes()
        .filter(|node| own.facts(node).and_then(NodeFacts::closed) == Some(Closed::Cordoned));
    let uncordoned = cordoned.map(|node| {
        let mut nodes = own.clone();
        nodes.uncordon(node);
        (format!("`kubectl uncordon {node}`"), nodes, None)
    });
    let ended = users(view, group).into_iter().map(|pod| {
        let (mut nodes, mut view) = (own.clone(), view.clone());
        leave(&mut view, &mut nodes, &pod);
        (format!("when pod {pod} ends"), nodes, Some(view))
    });
    let tried = uncordoned.chain(ended).take(TRIED_MAX);
    let helps = tried.filter_map(|(change, nodes, changed)| {
        let view = changed.as_ref().unwrap_or(view);
        let fabric = group.answer(view, &nodes, Timestamp::now()).ok()?;
        let nodes = nodes_of(view, &nodes, &fabric);
        Some(ExplainChange { change, nodes, fabric: Some(fabric) })
    });
    helps.take(SHOWN_MAX).collect()
}

/// The pods outside the group that have devices.
fn users(view: &ClusterView, group: &GroupPreview) -> BTreeSet<ObjectKey> {
    let users = view.claims().filter(|(_, known)| known.is_allocated).filter_map(|(key, known)| {
        let (name, _) = known.pod.as_ref()?;
        Some(ObjectKey { namespace: key.namespace.clone(), name: name.clone() })
    });
    users.filter(|pod| !group.has_member(&pod.namespace, &pod.name)).collect()
}

/// How many nodes of a fabric take pods.
fn nodes_of(view: &ClusterView, facts: &Nodes, fabric: &str) -> usize {
    let open = view
        .present_nodes()
        .filter(|node| facts.facts(node).is_some_and(|facts| facts.closed().is_none()));
    open.filter(|node| view.node_label(node, label::NODE_FABRIC) == Some(fabric)).count()
}
