//! The pinned cells join: a claim for the devices of named cells. It is the last resort
//! if no attribute ties GPUs to NICs and alternatives cannot be kept apart.
//!
//! This is the case beside an upstream DRANET on Azure: its NICs publish the machine
//! type, but no attribute in common with GPUs. People there write claims by bus ID by
//! hand. The claim is limited to one machine type, because bus IDs mean other cells
//! elsewhere. The cells are chosen for each pod: see [`crate::pin`].

use super::form::{Apart, Form, Way};
use super::{Candidate, Question};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use std::collections::BTreeMap;
use topology_graph::{Cell, PciAddress};

/// The most claims per demand. Blocks can be spread over cells in many ways, and each
/// claim's cost is measured.
const PINS_MAX: usize = 32;

/// Attributes with a NIC's PCI address, the standard one first.
const ADDRESS_ATTRIBUTES: [&str; 2] = [attribute::PCI_BUS_ID, attribute::dranet::PCI_ADDRESS];

/// The NIC attribute that names the machine type, and its value.
pub(crate) type MachineType = (&'static str, String);

/// A cell on the nodes of one machine type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinnedCell {
    /// The cell's name in the topology.
    pub(crate) key: String,
    /// The NIC attribute that names the machine type, and its value.
    pub(crate) machine: MachineType,
    /// The NIC attribute with the bus ID.
    pub(crate) address_attribute: &'static str,
    pub(crate) gpus: Vec<PciAddress>,
    pub(crate) nics: Vec<PciAddress>,
}

/// The machine types whose cells can be pinned, each with an example.
pub(crate) fn machine_types<'q, 'm>(
    question: Question<'q>,
) -> BTreeMap<MachineType, &'q Machine<'m>>
where
    'q: 'm,
{
    let types =
        question.machines.iter().filter_map(|machine| Some((machine_type(machine)?, machine)));
    types.collect()
}

/// One candidate for each choice of cells on a machine type.
pub(crate) fn propose(
    question: Question<'_>,
    of: &MachineType,
    nearness: Nearness,
) -> Vec<Candidate> {
    let all = choices(question, nearness, of);
    let step = all.len().div_ceil(PINS_MAX).max(1);
    all.into_iter()
        .step_by(step)
        .filter_map(|cells| candidate(question, nearness, &cells))
        .collect()
}

/// Every choice of cells for the blocks on machines of a type: one cell per block.
fn choices(question: Question<'_>, nearness: Nearness, of: &MachineType) -> Vec<Vec<PinnedCell>> {
    let cells = cells(question, nearness, of);
    let rooms: Vec<_> =
        cells.iter().map(|cell| question.demand.capacity(&cell.as_cell())).collect();
    let spread = question.demand.spreads(&rooms);
    let chosen = |counts: Vec<usize>| {
        let blocks = cells.iter().zip(counts);
        blocks.flat_map(|(cell, count)| vec![cell.clone(); count]).collect()
    };
    spread.into_iter().rev().map(chosen).collect()
}

/// The cells of machines of a type. Nodes may publish different devices of a cell.
fn cells(question: Question<'_>, nearness: Nearness, of: &MachineType) -> Vec<PinnedCell> {
    let mut cells: BTreeMap<String, PinnedCell> = BTreeMap::new();
    for machine in question.machines.iter().filter(|it| machine_type(it).as_ref() == Some(of)) {
        let Some(address_attribute) = address_attribute(machine) else { continue };
        for Cell { key, gpus, nics } in nearness.cells(machine) {
            let cell = cells.entry(key.clone()).or_insert_with(|| PinnedCell {
                key,
                machine: of.clone(),
                address_attribute,
                gpus: Vec::new(),
                nics: Vec::new(),
            });
            super::cells::extend(&mut cell.gpus, gpus);
            super::cells::extend(&mut cell.nics, nics);
        }
    }
    cells.into_values().collect()
}

/// The candidate for these cells; `None` if their devices are not near each other on some
/// machine of the type.
fn candidate(
    question: Question<'_>,
    nearness: Nearness,
    blocks: &[PinnedCell],
) -> Option<Candidate> {
    let Question { demand, counts, machines, .. } = question;
    let of = &blocks.first()?.machine;
    let is_of = |machine: &Machine<'_>| machine_type(machine).as_ref() == Some(of);
    let holds =
        |machine: &Machine<'_>| blocks.iter().all(|cell| cell.is_near_on(machine, nearness));
    if machines.iter().any(|machine| is_of(machine) && !holds(machine)) {
        return None;
    }
    let mut cells = blocks.to_vec();
    cells.dedup();
    let count = |cell: &PinnedCell| blocks.iter().filter(|block| *block == cell).count();
    let fits = |machine: &Machine<'_>| {
        let there = |cell: &PinnedCell| demand.capacity(&cell.on(machine)) >= count(cell);
        is_of(machine)
            && address_attribute(machine) == Some(cells[0].address_attribute)
            && cells.iter().all(there)
    };
    let serves: Vec<_> = machines.iter().map(fits).collect();
    // Blocks in the same cell are merged if all containers share the GPUs.
    let sizes: Vec<_> = cells.iter().filter_map(|cell| u32::try_from(count(cell)).ok()).collect();
    let (demand, ways) = match counts {
        Some(_) => (demand.in_sizes(&sizes), cells.as_slice()),
        None => (demand.clone(), blocks),
    };
    let levels = serves.iter().map(|serves| serves.then_some(nearness)).collect();
    serves.contains(&true).then(|| Candidate {
        join: "pinned cells",
        why: "GPUs and NICs publish no attribute in common, and the NICs none that tells them \
              from GPUs, so the claim lists the devices of cells that were chosen when the pod \
              was created"
            .to_owned(),
        nearness,
        levels,
        demand,
        form: Form {
            ways: ways.iter().cloned().map(Way::Pinned).collect(),
            only: None,
            apart: Apart::Pinned,
        },
        serves,
        far_because: super::FAR,
    })
}

/// The NIC attribute that names the machine type, and its value. `None` if NICs publish
/// their node's shape: then other joins can list cells.
fn machine_type(machine: &Machine<'_>) -> Option<MachineType> {
    let mut nics = machine.devices.nics.values();
    if nics.any(|nic| text(nic, attribute::SHAPE).is_some()) {
        return None;
    }
    attribute::MACHINE_TYPES.into_iter().find_map(|name| {
        let mut values = machine.devices.nics.values().map(|nic| text(nic, name));
        let first = values.next()??;
        values.all(|value| value == Some(first)).then(|| (name, first.to_owned()))
    })
}

/// The attribute with the bus ID that all NICs of a machine have.
fn address_attribute(machine: &Machine<'_>) -> Option<&'static str> {
    ADDRESS_ATTRIBUTES.into_iter().find(|name| machine.nics_have(name))
}

impl PinnedCell {
    fn as_cell(&self) -> Cell {
        Cell { key: self.key.clone(), gpus: self.gpus.clone(), nics: self.nics.clone() }
    }

    /// The cell's devices that the machine has.
    fn on(&self, machine: &Machine<'_>) -> Cell {
        let mut cell = self.as_cell();
        cell.gpus.retain(|gpu| machine.devices.gpus.contains_key(gpu));
        cell.nics.retain(|nic| machine.devices.nics.contains_key(nic));
        cell
    }

    /// Returns true if all the cell's devices that the machine has are in one cell there.
    fn is_near_on(&self, machine: &Machine<'_>, nearness: Nearness) -> bool {
        let there = self.on(machine);
        let near = nearness.cells(machine);
        there.gpus.iter().all(|gpu| {
            let mut own = near.iter().filter(|cell| cell.gpus.contains(gpu));
            let own = own.next();
            there.nics.iter().all(|nic| own.is_some_and(|cell| cell.nics.contains(nic)))
        })
    }
}
