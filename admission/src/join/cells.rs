//! The cells join: no attribute locates both GPUs and NICs, so every cell of the topology
//! is a separate alternative that lists PCI bus IDs.
//!
//! Bus IDs mean different cells on different machines, so each alternative also names the
//! machine shape, which the NICs publish.

use super::form::{Apart, CellWay, Form, WAYS_MAX, Way};
use super::{Candidate, Question};
use crate::nearness::Nearness;
use crate::wording::count;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::names::{self, attribute};
use cluster_model::node_devices::text;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology_graph::{Cell, Level, PciAddress, ShapeHash};

/// One candidate with the cells of the shapes that can serve.
pub(super) fn propose(question: Question<'_>, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, driver, machines, .. } = question;
    let apart = apart(question, nearness)?;
    let cells = ways(question, nearness, WAYS_MAX);
    let serves: Vec<_> = machines
        .iter()
        .map(|machine| {
            let listed = |cell: &Cell| cells.iter().any(|way| way.holds(machine.shape(), cell));
            let mut serving = serving(machine, question, nearness);
            serving.retain(listed);
            demand.fits(&serving)
        })
        .collect();
    let shapes = cells.iter().map(|way| way.shape).collect::<std::collections::BTreeSet<_>>().len();
    serves.contains(&true).then(|| Candidate {
        join: match apart {
            Apart::Kind => "cells",
            Apart::Anchor { .. } | Apart::Pinned => "anchored cells",
        },
        why: format!(
            "{} and {} publish no common attribute that says which {} a device is on, so the \
             claim lists those of the graph that are large enough: {} on {} of node",
            driver.driver,
            names::DRIVER,
            nearness.place(),
            cells.len(),
            count(shapes, "shape")
        ),
        nearness,
        demand: demand.clone(),
        form: Form { ways: cells.into_iter().map(Way::Cell).collect(), only: None, apart },
        serves,
    })
}

/// The cells that can serve a block, by shape. If not all fit into one request, prefers
/// the shapes with most nodes.
pub(super) fn ways(question: Question<'_>, nearness: Nearness, most: usize) -> Vec<CellWay> {
    let mut by_shape: BTreeMap<ShapeHash, (usize, Vec<CellWay>)> = BTreeMap::new();
    for machine in question.machines {
        let shape = machine.shape();
        let served = serving(machine, question, nearness);
        let (count, known) = by_shape.entry(shape).or_default();
        *count += if served.is_empty() { 0 } else { machine.nodes.len() };
        for Cell { gpus, nics, .. } in served {
            // Nodes of one shape may publish different devices of a cell.
            match known.iter_mut().find(|cell| overlap(&cell.nics, &nics)) {
                Some(cell) => {
                    extend(&mut cell.gpus, gpus);
                    extend(&mut cell.nics, nics);
                }
                None => known.push(CellWay { shape, gpus, nics }),
            }
        }
    }
    let mut shapes: Vec<_> = by_shape.into_values().collect();
    shapes.sort_by_key(|(count, _)| Reverse(*count));
    let mut ways = Vec::new();
    for (_, cells) in shapes {
        if ways.len() + cells.len() <= most {
            ways.extend(cells);
        }
    }
    ways
}

/// How the alternatives are kept apart: by the kind of a device, otherwise by an anchor.
/// An anchor needs containers without GPUs of their own, and an attribute on which NICs
/// differ between cells.
fn apart(question: Question<'_>, nearness: Nearness) -> Option<Apart> {
    if question.driver.kind_attribute.is_some() {
        return Some(Apart::Kind);
    }
    question.counts?;
    let nics_by = match nearness {
        Nearness::Level(Level::Numa) => attribute::NUMA_NODE,
        // No attribute identifies root ports, but often each has its own root.
        Nearness::Level(Level::RootPort | Level::Root) => attribute::PCIE_ROOT,
        Nearness::Level(Level::Switch) => attribute::PCIE_SWITCH,
        // A single NIC is its own anchor; with several, nothing says which GPU they
        // belong to.
        Nearness::Partner if question.demand.nics == 1 => attribute::PCI_BUS_ID,
        // Nor does any attribute say which socket a NIC is on.
        Nearness::Partner | Nearness::Level(Level::Socket) => return None,
    };
    Some(Apart::Anchor { nics_by })
}

/// The cells of a machine that can serve a block and whose NICs have the attribute that
/// keeps cells apart.
fn serving(machine: &Machine<'_>, question: Question<'_>, nearness: Nearness) -> Vec<Cell> {
    let mut cells = nearness.cells(machine);
    let Some(apart) = apart(question, nearness) else { return Vec::new() };
    let known = |nic: &PciAddress| {
        let nic = machine.devices.nics[nic];
        match (apart, question.driver.kind_attribute) {
            (Apart::Kind, Some(kind)) => text(nic, kind) == Some(NIC_KIND),
            (Apart::Kind, None) | (Apart::Pinned, _) => false,
            (Apart::Anchor { .. }, _) => text(nic, attribute::PCI_BUS_ID).is_some(),
        }
    };
    for cell in &mut cells {
        cell.nics.retain(known);
    }
    if let Apart::Anchor { nics_by } = apart
        && question.demand.nics > 1
        && !distinguishes_cells(machine, &cells, nics_by)
    {
        return Vec::new();
    }
    cells.retain(|cell| question.demand.capacity(cell) > 0);
    cells
}

/// Whether all NICs of a cell have the same value of the attribute, and no NIC outside
/// the cell has it.
fn distinguishes_cells(machine: &Machine<'_>, cells: &[Cell], attribute: &str) -> bool {
    let nics = &machine.devices.nics;
    let cell_of = |nic: &PciAddress| cells.iter().position(|cell| cell.nics.contains(nic));
    nics.iter().all(|(nic, device)| {
        let Some(value) = device.attribute(attribute) else { return cell_of(nic).is_none() };
        let mut same = nics.iter().filter(|(_, it)| it.attribute(attribute) == Some(value));
        same.all(|(other, _)| cell_of(other) == cell_of(nic))
            && cells.iter().filter(|cell| cell.nics.contains(nic)).all(|cell| {
                cell.nics.iter().all(|other| nics[other].attribute(attribute) == Some(value))
            })
    })
}

fn overlap(one: &[PciAddress], other: &[PciAddress]) -> bool {
    one.iter().any(|address| other.contains(address))
}

/// Merges addresses into a sorted list without duplicates.
pub(super) fn extend(known: &mut Vec<PciAddress>, more: Vec<PciAddress>) {
    known.extend(more);
    known.sort_unstable();
    known.dedup();
}

impl CellWay {
    fn holds(&self, shape: ShapeHash, cell: &Cell) -> bool {
        self.shape == shape && overlap(&self.nics, &cell.nics)
    }
}
