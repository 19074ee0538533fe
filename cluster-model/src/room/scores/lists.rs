//! Points for devices of the first alternatives in lists (`computeScore` in `plugins/dynamicresources`).

use crate::predict::{Fit, Prediction};
use crate::room::{Ask, Room};
use dra_allocator::claim::RequestKind;
use dra_allocator::{Claim, ClaimAllocation};
use std::collections::{HashMap, HashSet};

/// The most alternatives of a request (`FirstAvailableDeviceRequestMaxSize`).
const ALTERNATIVES: i64 = 8;

impl Room<'_> {
    /// The points of nodes before they are compared.
    pub(super) fn points_for_lists(&self, nodes: &[&str], ask: &Ask) -> Result<Vec<i64>, String> {
        let attempt = self.attempt(ask, nodes.iter().copied())?;
        let mut of_node = HashMap::new();
        for alike in attempt.alike() {
            let Prediction::Fits(Fit { allocations, .. }) = &alike.result else { continue };
            let points = alike.claims.iter().zip(allocations);
            let points: i64 = points.map(|(claim, allocation)| points_of(claim, allocation)).sum();
            of_node.extend(alike.nodes.iter().map(|node| (*node, points)));
        }
        Ok(nodes.iter().map(|node| of_node.get(node).copied().unwrap_or_default()).collect())
    }
}

fn points_of(claim: &Claim, allocation: &ClaimAllocation) -> i64 {
    let chosen: HashSet<&str> = allocation.results.iter().map(|result| &*result.request).collect();
    let lists = claim.requests.iter().filter_map(|request| match &request.kind {
        RequestKind::FirstAvailable(asks) => Some((&request.name, asks)),
        RequestKind::Exactly(_) | RequestKind::Unknown => None,
    });
    let points = lists.flat_map(|(name, asks)| {
        let named = asks.iter().map(move |ask| format!("{name}/{}", ask.name));
        let taken = named.zip(0..).filter(|(name, _)| chosen.contains(name.as_str()));
        taken.map(|(_, place)| ALTERNATIVES - place)
    });
    points.sum()
}
