//! Orders NICs within the slices. The scheduler takes the first devices that satisfy a
//! claim, in slice order. With near NICs side by side, small claims fill one cell before
//! they break the next, and whole cells stay free for claims that need them. Pure.

use crate::nic::NicState;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology_graph::{Level, PciAddress, Topology};

/// Cell levels from the widest to the narrowest; each is within the one before.
const LEVELS: [Level; 4] = [Level::Numa, Level::Root, Level::RootPort, Level::Switch];

/// Sorts the NICs by role, compute NICs first; those of a role cell by cell; those of a cell
/// by rate, fast ones first, and by address. NICs without a known cell follow; virtual
/// interfaces come last, in their given order. Those that nobody can get come before all others, in
/// their given order.
pub(crate) fn by_cells(
    nics: &mut [NicState],
    topology: &Topology,
    can_be_given: impl Fn(&NicState) -> bool,
) {
    let cells = LEVELS.map(|level| cells(topology, level));
    nics.sort_by_cached_key(|nic| can_be_given(nic).then(|| place(nic, topology, &cells)));
}

/// Maps each NIC to the number of its cell.
fn cells(topology: &Topology, level: Level) -> BTreeMap<PciAddress, usize> {
    let cells = topology.cells_of_all(level).into_iter().enumerate();
    cells.flat_map(|(number, cell)| cell.nics.into_iter().map(move |nic| (nic, number))).collect()
}

/// The sort key of a NIC. A virtual function has the place of its physical function.
fn place(
    nic: &NicState,
    topology: &Topology,
    cells: &[BTreeMap<PciAddress, usize>],
) -> impl Ord + use<> {
    let (own, physical) = (nic.address(), nic.physical_function());
    let numbers = cells.iter().map(|cells| {
        let mut known = [own, physical].into_iter().flatten().filter_map(|it| cells.get(&it));
        // Unknown cells come last.
        known.next().copied().unwrap_or(usize::MAX)
    });
    let numbers: Vec<usize> = numbers.collect();
    let known = own.and_then(|address| topology.nic(address));
    let rate = known.filter(|nic| nic.has_link()).and_then(|nic| nic.rate_megabits);
    (own.is_none(), known.map(|nic| nic.role), numbers, Reverse(rate), own)
}

#[cfg(test)]
mod tests;
