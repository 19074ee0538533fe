//! The claims that would have to move so that one more pod fits.

use crate::answer::ToMove;
use cluster_model::room::{Ask, Room};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::ClaimName;
use preemptor::holders;
use std::collections::BTreeSet;

/// The node on which the fewest claims would have to move, and these; claims of some pods stay.
pub(crate) fn fewest<'n>(
    room: &Room<'_>,
    nodes: impl IntoIterator<Item = &'n str>,
    ask: &Ask,
    stay: &BTreeSet<ObjectKey>,
) -> Option<ToMove> {
    let (node, claims) = holders::fewest(room, ask, nodes, |claim| {
        user(room.view(), claim).is_some_and(|pod| stay.contains(&pod))
    })?;
    let claims = claims.iter().map(|claim| named(room.view(), claim)).collect();
    Some(ToMove { node: node.to_owned(), claims })
}

/// `namespace/claim`, with the pod that uses it if known.
fn named(view: &ClusterView, claim: &ClaimName) -> String {
    match user(view, claim) {
        Some(pod) => format!("{claim} of pod {}", pod.name),
        None => claim.to_string(),
    }
}

/// The pod that uses a claim, if known.
pub(crate) fn user(view: &ClusterView, claim: &ClaimName) -> Option<ObjectKey> {
    let key = ObjectKey { namespace: claim.namespace.to_string(), name: claim.name.to_string() };
    let (pod, _) = view.claim(&key)?.pod.as_ref()?;
    Some(ObjectKey { name: pod.clone(), ..key })
}
