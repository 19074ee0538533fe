//! A preemption as values, from what was found.

use super::decision::{PlacedClaim, Placement, PodId, Preemption};
use super::pods::WaitingPod;
use super::units::Units;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{ClaimAllocation, ClaimName, DeviceId};
use std::collections::BTreeSet;

/// The placement of a pod with these devices; `None` if a claim is to be made for an extended resource.
pub(crate) fn placement(
    view: &ClusterView,
    (key, pod): (ObjectKey, &WaitingPod),
    (node, domains): (&str, Vec<LevelDomain>),
    devices: Vec<ClaimAllocation>,
) -> Option<Placement> {
    let open = pod.ask.claims(view).ok()?;
    if open.len() != devices.len() {
        return None;
    }
    let claims = open.iter().zip(devices);
    let claims = claims
        .map(|(claim, allocation)| PlacedClaim { claim: key_of(&claim.name), allocation })
        .collect();
    let pod = PodId { key, uid: pod.uid.to_string() };
    Some(Placement { pod, node: node.to_owned(), domains, claims })
}

/// The key of a claim.
pub(crate) fn key_of(claim: &ClaimName) -> ObjectKey {
    ObjectKey { namespace: claim.namespace.to_string(), name: claim.name.to_string() }
}

/// The preemption by which these units leave.
pub(crate) fn preemption(
    units: &Units<'_>,
    victims: &[usize],
    (priority, fabric): (i32, Option<&str>),
    placements: Vec<Placement>,
) -> Preemption {
    let claims = placements.iter().flat_map(|placement| &placement.claims);
    let results = claims.flat_map(|placed| &placed.allocation.results);
    let kept: BTreeSet<DeviceId> =
        results.filter(|result| !result.admin_access).map(|result| result.device.clone()).collect();
    let freed =
        units.devices(victims).into_iter().filter(|device| !kept.contains(device)).collect();
    Preemption {
        priority,
        fabric: fabric.map(str::to_owned),
        placements,
        victims: units.victims(victims),
        kept: kept.into_iter().collect(),
        freed,
        moves: false,
    }
}
