//! How NICs are connected now, beside what they are: the link as it runs, and what
//! the ports above do. It is no part of the shape, since it changes on one machine.

use std::collections::BTreeMap;

use super::Vertices;
use crate::shape::{Place, Role};
use crate::snapshot::PciFunction;
use crate::{Acs, PciAddress, PcieLink, Snapshot};

/// The state of one NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NicState {
    pub(crate) current_link: Option<PcieLink>,
    pub(crate) acs: Option<Acs>,
}

/// States by address; what is not here is unknown.
pub(crate) type NicStates = BTreeMap<PciAddress, NicState>;

pub(super) fn of_nics(snapshot: &Snapshot, vertices: &Vertices) -> NicStates {
    let nics = vertices.values().filter(|vertex| vertex.role == Role::Nic);
    let states = nics.filter_map(|nic| {
        let Place::Function(address) = nic.place else { return None };
        let function = snapshot.function(address)?;
        // Where another function moves the data, the ports above that one matter.
        let mover = match nic.data_path {
            Some(Place::Function(address)) => snapshot.function(address)?,
            _ => function,
        };
        let acs = acs(mover, snapshot);
        Some((address, NicState { current_link: function.current_link, acs }))
    });
    states.filter(|(_, state)| *state != NicState::default()).collect()
}

/// Nothing where no port is there, or one does not tell.
fn acs(function: &PciFunction, snapshot: &Snapshot) -> Option<Acs> {
    let ports = function.bridges.iter();
    let controls = ports.map(|port| Some(Acs::from(snapshot.function(*port)?.acs?)));
    controls.collect::<Option<Vec<Acs>>>()?.into_iter().max()
}
