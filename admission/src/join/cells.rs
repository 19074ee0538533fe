//! The cells join: no attribute locates both GPUs and NICs, so cells of the topology are separate
//! alternatives that list PCI bus IDs.
//!
//! Bus IDs mean different cells on different machines, so each alternative also names the machine
//! shapes, which the NICs publish.

use super::form::{Apart, Form, Way};
use super::ways::{CellWays, MachineCells};
use super::{Candidate, full_cells};
use crate::fleet::Fleet;
use crate::nearness::Nearness;
use crate::promise::{Levels, Nodes, Promises};
use crate::wording::count;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use cluster_model::published_device::PublishedDevice as _;
use std::collections::BTreeSet;
use topology_graph::{Cell, Level, PciAddress};

/// The cells of several machines as ways, and the machines all of whose cells are there.
pub(super) struct Collected<'m> {
    pub(super) ways: Vec<Way>,
    pub(super) served: Nodes<'m>,
}

/// One candidate with the cells of the machines that can serve.
pub(super) fn propose<'m>(
    fleet: Fleet<'_, 'm>,
    levels: &Levels<'m>,
    room: usize,
) -> Option<Candidate<'m>> {
    let apart = apart(fleet, levels)?;
    let Collected { ways, served } = collect(fleet, levels, apart, room);
    let promises = Promises::at(levels, &served);
    let why = why(fleet, promises.on_most(fleet), ways.len(), &served);
    let join = match apart {
        Apart::Kind => "cells",
        Apart::Anchor { .. } | Apart::Block => "anchored cells",
    };
    Candidate::new(fleet, (join, why), Form::new(ways, apart), promises).if_any_served()
}

fn why(fleet: Fleet<'_, '_>, nearness: Nearness, cells: usize, served: &Nodes<'_>) -> String {
    let serving = fleet.machines.iter().filter(|machine| served.contains(machine.devices.node));
    let shapes: BTreeSet<_> = serving.flat_map(|machine| &machine.shapes).collect();
    format!(
        "{} and {} publish no common attribute that says which {} a device is on, so the claim \
         lists those of the graph that are large enough: {cells} on {} of node",
        fleet.driver().driver,
        fleet.terms.nic_class.driver().driver,
        nearness.place(),
        count(shapes.len(), "shape")
    )
}

/// The cells that can serve a block, each machine's at its level. If not all fit into one request,
/// leaves out machines, those with the fewest nodes first.
pub(super) fn collect<'m>(
    fleet: Fleet<'_, 'm>,
    levels: &Levels<'m>,
    apart: Apart,
    room: usize,
) -> Collected<'m> {
    let mut all = CellWays::default();
    let mut served = Nodes::new();
    for machine in fleet.machines {
        let Some(level) = levels.on(machine) else { continue };
        let cells = serving(machine, fleet, level, apart);
        if fleet.demand().fits(&cells)
            && all.add(&MachineCells::new(machine, full_cells(machine, level)), &cells, room)
        {
            served.insert(machine.devices.node);
        }
    }
    Collected { ways: all.into_ways().map(Way::Cell).collect(), served }
}

/// How the alternatives are kept apart: by the kind of a device, otherwise by an anchor.
/// An anchor needs containers without GPUs of their own, and an attribute on which NICs
/// differ between cells.
fn apart(fleet: Fleet<'_, '_>, levels: &Levels<'_>) -> Option<Apart> {
    if fleet.driver().kind_attribute.is_some() {
        return Some(Apart::Kind);
    }
    fleet.terms.counts.as_ref()?;
    // A claim has one such attribute, so the machine with most nodes decides.
    let mut levels = fleet.machines.iter().filter_map(|machine| levels.on(machine));
    levels.find_map(|level| anchor(fleet, level))
}

/// The attribute by which the other NICs follow an anchor at this level.
fn anchor(fleet: Fleet<'_, '_>, nearness: Nearness) -> Option<Apart> {
    let nics_by = match nearness {
        Nearness::Level(Level::Numa) => attribute::NUMA_NODE,
        // No attribute identifies root ports, but often each has its own root.
        Nearness::Level(Level::RootPort | Level::Root) => attribute::PCIE_ROOT,
        Nearness::Level(Level::Switch) => attribute::PCIE_SWITCH,
        // A single NIC is its own anchor; with several, nothing says which GPU they
        // belong to.
        Nearness::Partner if fleet.demand().nics == 1 => attribute::PCI_BUS_ID,
        // Nor does any attribute say which socket a NIC is on.
        Nearness::Partner | Nearness::Level(Level::Socket) => return None,
    };
    Some(Apart::Anchor { nics_by })
}

/// The cells of a machine that can serve a block and whose NICs have the attribute that
/// keeps cells apart.
pub(super) fn serving(
    machine: &Machine<'_>,
    fleet: Fleet<'_, '_>,
    nearness: Nearness,
    apart: Apart,
) -> Vec<Cell> {
    let mut cells = nearness.cells(machine);
    for cell in &mut cells {
        cell.nics.retain(|nic| {
            let nic = machine.devices.nics[nic];
            match (apart, fleet.driver().kind_attribute) {
                (Apart::Kind, Some(kind)) => text(nic, kind) == Some(NIC_KIND),
                (Apart::Kind, None) | (Apart::Block, _) => false,
                (Apart::Anchor { .. }, _) => text(nic, attribute::PCI_BUS_ID).is_some(),
            }
        });
        cell.gpus.retain(|gpu| {
            let gpu = machine.devices.gpus[gpu];
            match apart {
                // Constraints compare its bus ID with that of the anchor.
                Apart::Anchor { .. } => text(gpu, attribute::PCI_BUS_ID).is_some(),
                Apart::Kind | Apart::Block => gpu.published_address().is_some(),
            }
        });
    }
    if let Apart::Anchor { nics_by } = apart
        && fleet.demand().nics > 1
        && !distinguishes_cells(machine, &cells, nics_by)
    {
        return Vec::new();
    }
    cells.retain(|cell| fleet.demand().capacity(cell) > 0);
    cells
}

/// Whether all NICs of a cell have the same value of the attribute, and no NIC outside
/// the cell has it.
fn distinguishes_cells(machine: &Machine<'_>, cells: &[Cell], attribute: &str) -> bool {
    let nics = &machine.devices.nics;
    nics.iter().all(|(nic, device)| {
        let Some(value) = device.attribute(attribute) else {
            return cell_of(cells, *nic).is_none();
        };
        let mut same = nics.iter().filter(|(_, it)| it.attribute(attribute) == Some(value));
        same.all(|(other, _)| cell_of(cells, *other) == cell_of(cells, *nic))
            && cells.iter().filter(|cell| cell.nics.contains(nic)).all(|cell| {
                cell.nics.iter().all(|other| nics[other].attribute(attribute) == Some(value))
            })
    })
}

fn cell_of(cells: &[Cell], nic: PciAddress) -> Option<usize> {
    cells.iter().position(|cell| cell.nics.contains(&nic))
}

/// Merges addresses into a sorted list without duplicates.
pub(super) fn extend(known: &mut Vec<PciAddress>, more: Vec<PciAddress>) {
    known.extend(more);
    known.sort_unstable();
    known.dedup();
}
