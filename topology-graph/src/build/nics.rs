//! Facts about NICs that are not part of the shape: ports, vital product data, and whether a
//! description of the machine lists them.

use super::Branches;
use crate::class::is_network;
use crate::graph::Role;
use crate::nic_role::{FactsOfNics, NicFacts, is_one_adapter};
use crate::{Overlay, PciAddress, Snapshot};

pub(super) fn facts(
    snapshot: &Snapshot,
    overlays: &[&Overlay],
    branches: &Branches,
) -> FactsOfNics {
    let nics = branches.values().filter(|branch| branch.role() == Role::Nic);
    let nics: Vec<PciAddress> = nics.filter_map(|branch| branch.place().address()).collect();
    let listed = overlays.iter().map(|overlay| listed(overlay, &nics));
    let listed = listed.into_iter().find(|listed| !listed.is_empty());
    nics.iter()
        .map(|nic| {
            let is_listed = listed.as_ref().map(|listed| listed.contains(nic));
            (*nic, NicFacts { is_listed, ..NicFacts::new(*nic, snapshot) })
        })
        .collect()
}

/// The NICs whose adapter the description lists.
fn listed(overlay: &Overlay, nics: &[PciAddress]) -> Vec<PciAddress> {
    let listed = overlay.devices.iter().filter(|(_, device)| device.class.is_some_and(is_network));
    let listed: Vec<PciAddress> = listed.map(|(address, _)| *address).collect();
    nics.iter()
        .filter(|nic| listed.iter().any(|other| is_one_adapter(**nic, *other)))
        .copied()
        .collect()
}
