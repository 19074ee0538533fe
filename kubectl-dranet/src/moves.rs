//! Finds the claims that would have to move so that one more pod fits.

use crate::answer::ToMove;
use cluster_model::predict::{STEPS_MAX, budget};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{AllocatedState, Claim, ClaimName, DeviceId, Limits, Outcome, allocate};
use std::collections::BTreeMap;

/// The node on which the fewest claims would have to move; the first one by name wins
/// ties. Lists no claim that could stay.
pub(crate) fn fewest<'n>(
    view: &ClusterView,
    nodes: impl Iterator<Item = &'n str>,
    claims: &[Claim],
) -> Option<ToMove> {
    let moves = nodes.filter_map(|node| {
        let claims = on_node(view, node, claims)?;
        Some(ToMove { node: node.to_owned(), claims })
    });
    moves.min_by_key(|found| (found.claims.len(), found.node.clone()))
}

fn on_node(view: &ClusterView, node: &str, claims: &[Claim]) -> Option<Vec<String>> {
    let inventory = view.inventory();
    let fits = |state: &AllocatedState| {
        let budget = budget(view);
        let limits = Limits::within(STEPS_MAX, &budget);
        let attempt = allocate(inventory, node, claims, state, view.settings(), limits);
        matches!(attempt.outcome, Outcome::Allocated(_))
    };
    let mut held: BTreeMap<&ClaimName, Vec<&DeviceId>> = BTreeMap::new();
    for device in inventory.devices_on(node, view.settings()).ok()? {
        for holder in inventory.holders(device.id()) {
            held.entry(holder).or_default().push(device.id());
        }
    }
    // A device that claims share is free when all of them have left.
    let without = |leaving: &[&ClaimName]| {
        let mut state = inventory.state().clone();
        let devices = leaving.iter().filter_map(|claim| held.get(claim)).flatten();
        let is_left =
            |device: &DeviceId| inventory.holders(device).iter().all(|it| leaving.contains(&it));
        devices.filter(|device| is_left(device)).for_each(|device| state.remove(device));
        state
    };
    let mut leaving: Vec<&ClaimName> = held.keys().copied().collect();
    if leaving.is_empty() || !fits(&without(&leaving)) {
        return None;
    }
    // Claims with the most devices are tried first to stay.
    let mut largest = leaving.clone();
    largest.sort_by_key(|claim| std::cmp::Reverse(held.get(*claim).map_or(0, Vec::len)));
    for claim in largest {
        let rest: Vec<_> = leaving.iter().copied().filter(|other| *other != claim).collect();
        if fits(&without(&rest)) {
            leaving = rest;
        }
    }
    Some(leaving.into_iter().map(|claim| named(view, claim)).collect())
}

/// `namespace/claim`, with the pod that uses it if known.
fn named(view: &ClusterView, claim: &ClaimName) -> String {
    let key = ObjectKey { namespace: claim.namespace.to_string(), name: claim.name.to_string() };
    match view.claim(&key).and_then(|known| known.pod.as_ref()) {
        Some((pod, _)) => format!("{claim} of pod {pod}"),
        None => claim.to_string(),
    }
}
