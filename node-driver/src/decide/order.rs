//! In which order NICs stand in a slice. The scheduler takes the first devices
//! that satisfy a claim, in the order of the slices; with near NICs side by side
//! small claims fill one cell before they break the next, and whole cells stay
//! whole for those who need them. Pure.

use crate::decide::nic::Nic;
use std::collections::BTreeMap;
use topology_graph::{Level, PciAddress, Topology};

/// From the widest cells to the smallest, each within the one before.
const LEVELS: [Level; 4] = [Level::Numa, Level::Root, Level::RootPort, Level::Switch];

/// The NICs cell by cell, within a cell by address; those whose cell is not
/// known after the others, and virtual interfaces last, as they came.
pub fn by_cells<'a>(mut nics: Vec<Nic<'a>>, topology: &Topology) -> Vec<Nic<'a>> {
    let cells = LEVELS.map(|level| cells(topology, level));
    nics.sort_by_cached_key(|nic| place(nic, &cells));
    nics
}

/// The number of each NIC's cell.
fn cells(topology: &Topology, level: Level) -> BTreeMap<PciAddress, usize> {
    let cells = topology.cells(level).into_iter().enumerate();
    cells.flat_map(|(number, cell)| cell.nics.into_iter().map(move |nic| (nic, number))).collect()
}

/// What NICs are sorted by. A virtual function is where its physical function is.
fn place(nic: &Nic<'_>, cells: &[BTreeMap<PciAddress, usize>]) -> impl Ord + use<> {
    let function = nic.function;
    let number = |cells: &BTreeMap<PciAddress, usize>| {
        let function = function?;
        let physical = function.physical_function.and_then(|physical| cells.get(&physical));
        cells.get(&function.address).or(physical).copied()
    };
    // What is not known comes last.
    let numbers: Vec<usize> =
        cells.iter().map(|cells| number(cells).unwrap_or(usize::MAX)).collect();
    (function.is_none(), numbers, function.map(|function| function.address))
}

#[cfg(test)]
mod tests;
