//! The cells join: no attribute says where both a GPU and a NIC are, so every
//! cell of the graph is an alternative of its own, listed by bus ids.
//!
//! Bus ids mean different cells on different machines, so each alternative
//! names the shape too; the NIC knows its own.

use super::form::{CellWay, Form, WAYS_MAX, Way};
use super::{Candidate, Question};
use crate::nearness::Nearness;
use crate::supply::count;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::names;
use cluster_model::node_devices::text;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology_graph::{Cell, PciAddress, ShapeHash};

/// One candidate over the cells of the shapes that serve.
pub(super) fn propose(question: Question<'_>, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, driver, machines, .. } = question;
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
        join: "cells",
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
        form: Form { ways: cells.into_iter().map(Way::Cell).collect(), only: None },
        serves,
    })
}

/// The cells that can serve a block, by shape; the shapes with most nodes where
/// not all fit into one request.
pub(super) fn ways(question: Question<'_>, nearness: Nearness, most: usize) -> Vec<CellWay> {
    let mut by_shape: BTreeMap<ShapeHash, (usize, Vec<CellWay>)> = BTreeMap::new();
    for machine in question.machines {
        let shape = machine.shape();
        let served = serving(machine, question, nearness);
        let (count, known) = by_shape.entry(shape).or_default();
        *count += if served.is_empty() { 0 } else { machine.nodes.len() };
        for Cell { gpus, nics, .. } in served {
            // Nodes of one shape may publish different parts of a cell.
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

/// The cells of a machine that can serve a block, with the attribute that tells
/// the kinds apart on each of their NICs.
fn serving(machine: &Machine<'_>, question: Question<'_>, nearness: Nearness) -> Vec<Cell> {
    let kind = question.driver.kind_attribute;
    let mut cells = nearness.cells(machine);
    for cell in &mut cells {
        cell.nics.retain(|nic| text(machine.devices.nics[nic], kind) == Some(NIC_KIND));
    }
    cells.retain(|cell| question.demand.capacity(cell) > 0);
    cells
}

fn overlap(one: &[PciAddress], other: &[PciAddress]) -> bool {
    one.iter().any(|address| other.contains(address))
}

fn extend(known: &mut Vec<PciAddress>, more: Vec<PciAddress>) {
    known.extend(more);
    known.sort_unstable();
    known.dedup();
}

impl CellWay {
    fn holds(&self, shape: ShapeHash, cell: &Cell) -> bool {
        self.shape == shape && overlap(&self.nics, &cell.nics)
    }
}
