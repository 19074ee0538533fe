//! The claims whose devices would have to be free so that one more pod fits, whoever has them.

use super::search::{Improvement, TRIES, Trial, reprieve};
use cluster_model::room::{Ask, Room};
use dra_allocator::ClaimName;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Whether a pod fits on a node without some claims.
struct ClaimTrial<'t, 'a> {
    room: &'t Room<'a>,
    ask: &'t Ask,
    node: &'t str,
    claims: Vec<&'t ClaimName>,
    leaving: Vec<bool>,
}

impl Trial for ClaimTrial<'_, '_> {
    /// The number of claims.
    type Harm = usize;

    fn set(&mut self, unit: usize, leaves: bool) {
        self.leaving[unit] = leaves;
    }

    fn suffices(&mut self) -> bool {
        let leaving = self.claims.iter().zip(&self.leaving).filter(|(_, leaves)| **leaves);
        let leaving: Vec<&ClaimName> = leaving.map(|(claim, _)| *claim).collect();
        matches!(self.room.without(&leaving).why_not(self.node, self.ask), Ok(None))
    }
}

/// The node on which the fewest claims would have to give back their devices so that the pod fits, and
/// these claims, none of which is to stay; the first node by name of equal ones.
pub fn fewest<'n>(
    room: &Room<'_>,
    ask: &Ask,
    nodes: impl IntoIterator<Item = &'n str>,
    stays: impl Fn(&ClaimName) -> bool,
) -> Option<(&'n str, Vec<ClaimName>)> {
    let nodes: Vec<&str> = nodes.into_iter().collect();
    // Free devices do not help where the scheduler fails.
    if room.attempt(ask, nodes.iter().copied()).ok()?.failing().is_some() {
        return None;
    }
    let mut tries = TRIES;
    let found = nodes.into_iter().filter_map(|node| {
        let claims = on_node(room, ask, (node, &stays), &mut tries)?;
        Some((node, claims))
    });
    found.min_by_key(|(node, claims)| (claims.len(), *node))
}

fn on_node(
    room: &Room<'_>,
    ask: &Ask,
    (node, stays): (&str, &impl Fn(&ClaimName) -> bool),
    tries: &mut usize,
) -> Option<Vec<ClaimName>> {
    let (view, mut held) = (room.view(), BTreeMap::new());
    let inventory = view.inventory();
    for device in inventory.devices_on(node, view.settings()).ok()? {
        for holder in inventory.holders(device.id()).iter().filter(|holder| !stays(holder)) {
            *held.entry(holder).or_insert(0_usize) += 1;
        }
    }
    // Claims with the most devices are tried first to stay.
    let mut claims: Vec<&ClaimName> = held.keys().copied().collect();
    claims.sort_by_key(|claim| Reverse(held.get(*claim)));
    let order: Vec<usize> = (0..claims.len()).collect();
    let leaving = vec![true; claims.len()];
    let mut trial = ClaimTrial { room, ask, node, claims, leaving };
    if order.is_empty() || !trial.suffices() {
        return None;
    }
    let mut fewest = reprieve(&order, &mut trial);
    trial.set_all(&order, true);
    let improvement = Improvement {
        order: &order,
        trial: &mut trial,
        harm: |claims: &[usize]| Some(claims.len()),
        best: Some(fewest.len()),
        tries,
    };
    if let Some((_, claims)) = improvement.search() {
        fewest = claims;
    }
    let mut names: Vec<ClaimName> =
        fewest.into_iter().map(|claim| trial.claims[claim].clone()).collect();
    names.sort();
    Some(names)
}
