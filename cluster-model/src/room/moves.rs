//! Finds the claims whose devices would have to be free so that one more pod fits.

use super::Room;
use super::ask::Ask;
use super::attempt::ResolvedAsk;
use dra_allocator::{ClaimName, DeviceId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl Room<'_> {
    /// The node on which the fewest claims would have to give back their devices so that the pod
    /// fits, and these claims; the first node by name of equal ones. Lists no claim that could stay.
    pub fn fewest_moves<'n>(
        &self,
        ask: &Ask,
        nodes: impl IntoIterator<Item = &'n str>,
    ) -> Option<(&'n str, Vec<ClaimName>)> {
        let resolved = self.resolve(ask).ok()?;
        let nodes: Vec<&str> = nodes.into_iter().collect();
        // Free devices do not help where the scheduler fails.
        if self.attempt_resolved(&resolved, nodes.iter().copied()).failing().is_some() {
            return None;
        }
        let moves = nodes.into_iter().filter_map(|node| {
            let claims = self.moves_on(node, &resolved)?;
            Some((node, claims))
        });
        moves.min_by_key(|(node, claims)| (claims.len(), *node))
    }

    fn moves_on(&self, node: &str, resolved: &ResolvedAsk<'_>) -> Option<Vec<ClaimName>> {
        let inventory = self.view.inventory();
        let mut held: BTreeMap<&ClaimName, Vec<&DeviceId>> = BTreeMap::new();
        for device in inventory.devices_on(node, self.view.settings()).ok()? {
            for holder in inventory.holders(device.id()) {
                held.entry(holder).or_default().push(device.id());
            }
        }
        let fits_without = |leaving: &[&ClaimName]| {
            !self.without(leaving).attempt_resolved(resolved, [node]).fits().is_empty()
        };
        let mut leaving: Vec<&ClaimName> = held.keys().copied().collect();
        if leaving.is_empty() || !fits_without(&leaving) {
            return None;
        }
        // Claims with the most devices are tried first to stay.
        let mut largest = leaving.clone();
        largest.sort_by_key(|claim| Reverse(held.get(*claim).map_or(0, Vec::len)));
        for claim in largest {
            let rest: Vec<_> = leaving.iter().copied().filter(|other| *other != claim).collect();
            if fits_without(&rest) {
                leaving = rest;
            }
        }
        Some(leaving.into_iter().cloned().collect())
    }
}
