//! What the ports above NICs do with requests to their peers. It is no part of the
//! shape, since it changes on one machine.

use std::collections::BTreeMap;

use super::Branches;
use crate::graph::{Place, Role};
use crate::snapshot::PciFunction;
use crate::{Acs, PciAddress, Snapshot};

/// By address; what is not here is unknown.
pub(super) fn of_nics(snapshot: &Snapshot, branches: &Branches) -> BTreeMap<PciAddress, Acs> {
    let nics = branches.values().filter(|branch| branch.role() == Role::Nic);
    let known = nics.filter_map(|nic| {
        let address = nic.place().address()?;
        // Where another function moves the data, the ports above that one matter.
        let mover = nic.data_path.and_then(Place::address).unwrap_or(address);
        Some((address, acs(snapshot.function(mover)?, snapshot)?))
    });
    known.collect()
}

/// Nothing where no port is there, or one does not tell.
fn acs(function: &PciFunction, snapshot: &Snapshot) -> Option<Acs> {
    let ports = function.bridges.iter();
    let controls = ports.map(|port| Some(Acs::from(snapshot.function(*port)?.acs?)));
    controls.collect::<Option<Vec<Acs>>>()?.into_iter().max()
}
