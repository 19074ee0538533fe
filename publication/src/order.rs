//! Orders NICs within the slices. The scheduler takes the first devices that satisfy a
//! claim, in slice order. With near NICs side by side, small claims fill one cell before
//! they break the next, and whole cells stay free for claims that need them. Pure.

use crate::nic::Nic;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology_graph::{Level, PciAddress, Topology};

/// Cell levels from the widest to the narrowest; each is within the one before.
const LEVELS: [Level; 4] = [Level::Numa, Level::Root, Level::RootPort, Level::Switch];

/// Sorts the NICs by role, compute NICs first; those of a role cell by cell; those of a cell
/// by rate, fast ones first, and by address. NICs without a known cell follow; virtual
/// interfaces come last, in their given order.
pub(crate) fn by_cells<'a>(mut nics: Vec<Nic<'a>>, topology: &Topology) -> Vec<Nic<'a>> {
    let cells = LEVELS.map(|level| cells(topology, level));
    nics.sort_by_cached_key(|nic| place(nic, topology, &cells));
    nics
}

/// Maps each NIC to the number of its cell.
fn cells(topology: &Topology, level: Level) -> BTreeMap<PciAddress, usize> {
    let cells = topology.cells_of_all(level).into_iter().enumerate();
    cells.flat_map(|(number, cell)| cell.nics.into_iter().map(move |nic| (nic, number))).collect()
}

/// The sort key of a NIC. A virtual function has the place of its physical function.
fn place(
    nic: &Nic<'_>,
    topology: &Topology,
    cells: &[BTreeMap<PciAddress, usize>],
) -> impl Ord + use<> {
    let function = nic.function;
    let number = |cells: &BTreeMap<PciAddress, usize>| {
        let function = function?;
        let physical = function.physical_function.and_then(|physical| cells.get(&physical));
        cells.get(&function.address).or(physical).copied()
    };
    // Unknown cells come last.
    let numbers: Vec<usize> =
        cells.iter().map(|cells| number(cells).unwrap_or(usize::MAX)).collect();
    let address = function.map(|function| function.address);
    let known = address.and_then(|address| topology.nic(address));
    let rate = known.filter(|nic| nic.has_link()).and_then(|nic| nic.rate_megabits);
    (function.is_none(), known.map(|nic| nic.role), numbers, Reverse(rate), address)
}

#[cfg(test)]
mod tests;
