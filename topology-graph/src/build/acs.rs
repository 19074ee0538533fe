//! The ACS mode of the ports above NICs. It is not part of the shape, since it can change on a
//! machine.

use std::collections::BTreeMap;

use super::Branches;
use crate::graph::{Place, Role};
use crate::snapshot::PciFunction;
use crate::{Acs, PciAddress, Snapshot};

/// By address; a missing entry is unknown.
pub(super) fn of_nics(snapshot: &Snapshot, branches: &Branches) -> BTreeMap<PciAddress, Acs> {
    let nics = branches.values().filter(|branch| branch.role() == Role::Nic);
    let known = nics.filter_map(|nic| {
        let address = nic.place().address()?;
        // If another function moves the NIC's data, the ports above that function matter.
        let mover = nic.data_path.and_then(Place::address).unwrap_or(address);
        Some((address, acs(snapshot.function(mover)?, snapshot)?))
    });
    known.collect()
}

/// `None` if there is no port above the function, or a port does not show its ACS mode.
fn acs(function: &PciFunction, snapshot: &Snapshot) -> Option<Acs> {
    let ports = function.bridges.iter();
    let controls = ports.map(|port| Some(Acs::from(snapshot.function(*port)?.acs?)));
    controls.collect::<Option<Vec<Acs>>>()?.into_iter().max()
}
