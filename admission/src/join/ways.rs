//! Puts the cells of many machine types into few ways.
//!
//! A claim has room for eight alternatives, and a cluster can have many more machine types. Cells
//! of several types share a way if it selects devices of one cell only on each of these types.
//! Types that differ only in lost devices always can; so can most others, since a bus ID rarely
//! belongs to the first cell on one type and to the second on another.

use super::form::{CellWay, Place};
use cluster_model::machines::Machine;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use topology_graph::{Cell, PciAddress, ShapeHash};

/// The most shapes that a way lists. An expression has at most 10 KiB
/// (`CELSelectorExpressionMaxLength`), and a shape takes 20 bytes.
const SHAPES_MAX: usize = 256;

/// A machine type: which of its devices may be in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineCells {
    shapes: BTreeSet<ShapeHash>,
    gpus: BTreeSet<PciAddress>,
    nics: BTreeSet<PciAddress>,
    cells: Vec<Cell>,
}

/// The ways of the types that were added.
#[derive(Clone, Debug, Default)]
pub(super) struct CellWays(Vec<Draft>);

/// A way that is being collected.
#[derive(Clone, Debug, Default)]
struct Draft {
    gpus: BTreeSet<PciAddress>,
    places: Vec<PlaceDraft>,
}

#[derive(Clone, Debug)]
struct PlaceDraft {
    nics: BTreeSet<PciAddress>,
    kinds: Vec<MachineCells>,
}

impl MachineCells {
    /// The type of a machine with these cells, which include devices that are not published now.
    pub(super) fn new(machine: &Machine<'_>, cells: Vec<Cell>) -> Self {
        let topology = machine.devices.topology;
        let published = &machine.devices;
        let gpus = topology.gpus().iter().map(|gpu| gpu.address);
        let nics = topology.nics().iter().map(|nic| nic.address);
        Self {
            shapes: machine.shapes.clone(),
            gpus: gpus.chain(published.gpus.keys().copied()).collect(),
            nics: nics.chain(published.nics.keys().copied()).collect(),
            cells,
        }
    }

    /// Returns true if these lists select devices of at most one cell on such a machine.
    fn holds(&self, gpus: &BTreeSet<PciAddress>, nics: &BTreeSet<PciAddress>) -> bool {
        self.cells.iter().any(|cell| {
            gpus.intersection(&self.gpus).all(|gpu| cell.gpus.contains(gpu))
                && nics.intersection(&self.nics).all(|nic| cell.nics.contains(nic))
        })
    }

    fn overlaps(&self, other: &Self) -> bool {
        !self.shapes.is_disjoint(&other.shapes)
    }
}

impl CellWays {
    /// The number of ways.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds cells of a machine type with at most `room` ways in total. Returns false, and adds
    /// nothing, if there is not enough room.
    pub(super) fn add(&mut self, kind: &MachineCells, cells: &[Cell], room: usize) -> bool {
        let homes = self.homes(kind, cells);
        let added = homes.iter().filter(|home| home.is_none()).count();
        if self.0.len() + added > room {
            return false;
        }
        for (cell, home) in cells.iter().zip(homes) {
            let draft = home.map(|home| &self.0[home]).cloned().unwrap_or_default();
            let Some(draft) = draft.with(kind, cell) else { return false };
            match home {
                Some(home) => self.0[home] = draft,
                None => self.0.push(draft),
            }
        }
        true
    }

    /// A different way for each cell, for as many cells as possible (augmenting paths).
    fn homes(&self, kind: &MachineCells, cells: &[Cell]) -> Vec<Option<usize>> {
        let possible = cells.iter().map(|cell| {
            let ways = (0..self.0.len()).filter(|way| self.0[*way].with(kind, cell).is_some());
            let mut ways: Vec<usize> = ways.collect();
            ways.sort_by_key(|way| Reverse(self.0[*way].in_common(cell)));
            ways
        });
        let possible: Vec<_> = possible.collect();
        let mut taken: Vec<Option<usize>> = vec![None; self.0.len()];
        for cell in 0..cells.len() {
            augment(cell, &possible, &mut taken, &mut BTreeSet::new());
        }
        (0..cells.len()).map(|cell| taken.iter().position(|it| *it == Some(cell))).collect()
    }

    pub(super) fn into_ways(self) -> impl Iterator<Item = CellWay> {
        self.0.into_iter().map(|Draft { gpus, places }| CellWay {
            gpus: gpus.into_iter().collect(),
            places: places
                .into_iter()
                .filter(|place| !place.nics.is_empty())
                .map(PlaceDraft::into_place)
                .collect(),
        })
    }
}

/// Gives a cell a way, moving others if needed. `taken` is the cell of each way.
fn augment(
    cell: usize,
    possible: &[Vec<usize>],
    taken: &mut [Option<usize>],
    seen: &mut BTreeSet<usize>,
) -> bool {
    for way in &possible[cell] {
        if seen.insert(*way)
            && taken[*way].is_none_or(|other| augment(other, possible, taken, seen))
        {
            taken[*way] = Some(cell);
            return true;
        }
    }
    false
}

impl Draft {
    /// The way with one more cell; `None` if it would then select devices of two cells on some
    /// machine.
    fn with(&self, kind: &MachineCells, cell: &Cell) -> Option<Self> {
        let mut draft = self.clone();
        draft.gpus.extend(&cell.gpus);
        let nics: BTreeSet<_> = cell.nics.iter().copied().collect();
        let gpus = &draft.gpus;
        let all = draft.places.iter();
        let shapes: usize = all.flat_map(|place| &place.kinds).map(|kind| kind.shapes.len()).sum();
        let still = draft.places.iter().all(|place| place.holds(gpus, &place.nics));
        if !still || shapes + kind.shapes.len() > SHAPES_MAX || !kind.holds(gpus, &nics) {
            return None;
        }
        // All NICs that the way selects on a shape are in one place.
        let is_known = draft.places.iter().any(|place| place.overlaps(kind));
        let home = draft.places.iter().position(|place| {
            let both = &place.nics | &nics;
            (place.overlaps(kind) || !is_known)
                && kind.holds(gpus, &both)
                && place.holds(gpus, &both)
        });
        match home {
            Some(index) => {
                let place = &mut draft.places[index];
                place.nics.extend(nics);
                if !place.kinds.contains(kind) {
                    place.kinds.push(kind.clone());
                }
            }
            None if is_known => return None,
            None => draft.places.push(PlaceDraft { nics, kinds: vec![kind.clone()] }),
        }
        Some(draft)
    }

    /// The number of devices that are listed already.
    fn in_common(&self, cell: &Cell) -> usize {
        let gpus = cell.gpus.iter().filter(|gpu| self.gpus.contains(gpu)).count();
        gpus + cell
            .nics
            .iter()
            .filter(|nic| self.places.iter().any(|place| place.nics.contains(nic)))
            .count()
    }
}

impl PlaceDraft {
    fn holds(&self, gpus: &BTreeSet<PciAddress>, nics: &BTreeSet<PciAddress>) -> bool {
        self.kinds.iter().all(|kind| kind.holds(gpus, nics))
    }

    /// Returns true if it has a shape of this kind.
    fn overlaps(&self, kind: &MachineCells) -> bool {
        self.kinds.iter().any(|it| it.overlaps(kind))
    }

    fn into_place(self) -> Place {
        let shapes = self.kinds.into_iter().flat_map(|kind| kind.shapes).collect();
        Place { shapes, nics: self.nics.into_iter().collect() }
    }
}
