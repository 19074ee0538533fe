//! Pods whose NICs are chosen when they start: what they can expect, and what they got.

use super::Answer;
use crate::answer::{ExpectedAtStart, ExplainAtStart};
use crate::at_start::AtNode;
use crate::text::node_list;
use cluster_model::room::{PodClaims, pod_claims};
use cluster_model::view::ClusterView;
use dra_allocator::Claim;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;

/// The answer about a pod that has a node.
pub(super) fn bound(pod: &Pod, view: &ClusterView, node: &str) -> Answer {
    let claims = pod_claims(pod, view).map(|claims| claims.allocated).unwrap_or_default();
    match AtNode::new(view, node, &claims) {
        Some(AtNode::Waits(why)) => Answer::Refused(format!("is bound to node {node}, and {why}")),
        Some(AtNode::Got(pairs)) => Answer::Fine(format!(
            "is bound to node {node} and got its NICs when it started there: {pairs}"
        )),
        None => Answer::Fine(format!(
            "is bound to node {node}; `kubectl dranet verify` shows what it got there"
        )),
    }
}

/// What a pod can expect on those of these nodes that bind NICs late. `claims` are those of `known` that
/// have no devices, in the allocator's form.
pub(super) fn at_start(
    view: &ClusterView,
    fits: &[String],
    known: &PodClaims,
    claims: &[Claim],
) -> Vec<ExplainAtStart> {
    let specs: Vec<ResourceClaimSpec> =
        known.open.iter().map(|open| (*open.spec).clone()).collect();
    let mut alike: Vec<ExplainAtStart> = Vec::new();
    let fits = fits.iter().map(String::as_str);
    for (node, expected) in ExpectedAtStart::on_nodes(view, fits, (&specs, claims)) {
        match alike.iter_mut().find(|known| known.expected == expected) {
            Some(known) => known.nodes.push(node.to_owned()),
            None => alike.push(ExplainAtStart { nodes: vec![node.to_owned()], expected }),
        }
    }
    alike
}

/// `node a: its NICs are chosen when the pod starts, near for …`.
pub(super) fn sentence(ExplainAtStart { nodes, expected }: &ExplainAtStart) -> String {
    let names: Vec<_> = nodes.iter().map(String::as_str).collect();
    let expected = expected.sentence();
    format!("{}: its NICs are chosen when the pod starts, {expected}", node_list(&names))
}
