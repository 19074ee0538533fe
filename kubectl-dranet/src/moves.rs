//! The claims that would have to move so that one more pod fits.

use crate::answer::ToMove;
use cluster_model::room::{Ask, Room};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::ClaimName;
use preemptor::holders;

/// The node on which the fewest claims would have to move, and these.
pub(crate) fn fewest<'n>(
    room: &Room<'_>,
    nodes: impl IntoIterator<Item = &'n str>,
    ask: &Ask,
) -> Option<ToMove> {
    let (node, claims) = holders::fewest(room, ask, nodes)?;
    let claims = claims.iter().map(|claim| named(room.view(), claim)).collect();
    Some(ToMove { node: node.to_owned(), claims })
}

/// `namespace/claim`, with the pod that uses it if known.
fn named(view: &ClusterView, claim: &ClaimName) -> String {
    let key = ObjectKey { namespace: claim.namespace.to_string(), name: claim.name.to_string() };
    match view.claim(&key).and_then(|known| known.pod.as_ref()) {
        Some((pod, _)) => format!("{claim} of pod {pod}"),
        None => claim.to_string(),
    }
}
