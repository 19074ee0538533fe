//! The pinned cells join: a claim for the devices of named cells. It is the last resort
//! if no attribute ties GPUs to NICs and alternatives cannot be kept apart.
//!
//! This is the case beside an upstream DRANET on Azure: its NICs publish the machine
//! type, but no attribute in common with GPUs. People there write claims by bus ID by
//! hand. The claim is limited to one machine type, because bus IDs mean other cells
//! elsewhere. The cells are chosen for each pod: see [`crate::pin`].

use super::form::{Apart, Form, Way};
use super::pinned_cell::{MachineType, PinnedCell};
use super::{Candidate, Question};
use crate::demand::Demand;
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use cluster_model::published_device::PublishedDevice as _;
use std::collections::BTreeMap;
use topology_graph::Cell;

/// The most claims per demand. Blocks can be spread over cells in many ways, and each
/// claim's cost is measured.
const PINS_MAX: usize = 32;

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
        .chain(whole(question, of, nearness))
        .collect()
}

/// Whether a machine has fewer devices than a demand takes.
fn is_smaller(machine: &Machine<'_>, demand: &Demand) -> bool {
    machine.devices.gpus.len() < demand.all_gpus() as usize
        || machine.devices.nics.len() < demand.all_nics() as usize
}

/// The candidate for every device of machines of a type whose NICs publish no bus ID.
fn whole(question: Question<'_>, of: &MachineType, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, machines, .. } = question;
    let counts = question.counts.or_else(|| (demand.blocks == 1).then_some(demand))?;
    let of_type = || machines.iter().filter(|it| machine_type(it).as_ref() == Some(of));
    let takes_all = |machine: &Machine<'_>| {
        machine.devices.gpus.len() == demand.all_gpus() as usize
            && machine.devices.nics.len() == demand.all_nics() as usize
            && demand.fits(&nearness.cells(machine))
            && address_attribute(question, machine).is_none()
            && machine.devices.gpus.values().all(|gpu| gpu.published_address().is_some())
    };
    if !of_type().all(|machine| takes_all(machine) || is_smaller(machine, demand)) {
        return None;
    }
    let serves: Vec<_> =
        machines.iter().map(|it| machine_type(it).as_ref() == Some(of) && takes_all(it)).collect();
    let gpus = of_type().flat_map(|machine| machine.devices.gpus.keys().copied());
    let mut cell = PinnedCell {
        key: "every device".to_owned(),
        machine: of.clone(),
        address_attribute: None,
        gpus: Vec::new(),
        nics: Vec::new(),
        physical: BTreeMap::new(),
    };
    super::cells::extend(&mut cell.gpus, gpus.collect());
    serves.contains(&true).then(|| Candidate {
        join: "pinned cells",
        why: "the pod takes every GPU and NIC of its node, so that each GPU has its own NICs near \
              it without any constraint, and is limited to nodes of one type"
            .to_owned(),
        nearness,
        levels: serves.iter().map(|serves| serves.then_some(nearness)).collect(),
        demand: counts.clone(),
        form: Form { ways: vec![Way::Pinned(cell)], only: None, apart: Apart::Pinned },
        serves,
        far_because: super::FAR,
        rungs: None,
    })
}

/// Every choice of cells for the blocks on machines of a type: one cell per block.
fn choices(question: Question<'_>, nearness: Nearness, of: &MachineType) -> Vec<Vec<PinnedCell>> {
    let cells = cells(question, nearness, of);
    let rooms: Vec<_> =
        cells.iter().map(|cell| question.demand.capacity(&cell.as_cell())).collect();
    let spread = question.demand.spreads(&rooms);
    spread
        .into_iter()
        .rev()
        .map(|counts| {
            let blocks = cells.iter().zip(counts);
            blocks.flat_map(|(cell, count)| vec![cell.clone(); count]).collect()
        })
        .collect()
}

/// The cells of machines of a type. Nodes may publish different devices of a cell.
fn cells(question: Question<'_>, nearness: Nearness, of: &MachineType) -> Vec<PinnedCell> {
    let mut cells: BTreeMap<String, PinnedCell> = BTreeMap::new();
    for machine in question.machines.iter().filter(|it| machine_type(it).as_ref() == Some(of)) {
        let Some(address_attribute) = address_attribute(question, machine) else { continue };
        let address_attribute = Some(address_attribute);
        for Cell { key, mut gpus, nics, physical } in nearness.cells(machine) {
            gpus.retain(|gpu| machine.devices.gpus[gpu].published_address().is_some());
            let cell = cells.entry(key.clone()).or_insert_with(|| PinnedCell {
                key,
                machine: of.clone(),
                address_attribute,
                gpus: Vec::new(),
                nics: Vec::new(),
                physical: BTreeMap::new(),
            });
            super::cells::extend(&mut cell.gpus, gpus);
            super::cells::extend(&mut cell.nics, nics);
            cell.physical.extend(physical);
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
    let serves: Vec<_> = machines
        .iter()
        .map(|machine| {
            is_of(machine)
                && address_attribute(question, machine) == cells[0].address_attribute
                && cells.iter().all(|cell| demand.capacity(&cell.on(machine)) >= count(cell))
        })
        .collect();
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
        rungs: None,
    })
}

/// The NIC attribute that names the machine type, and its value. `None` if NICs publish
/// their node's shape: then other joins can list cells.
fn machine_type(machine: &Machine<'_>) -> Option<MachineType> {
    let mut nics = machine.devices.nics.values();
    if nics.any(|nic| text(nic, attribute::SHAPE).is_some()) {
        return None;
    }
    let published = attribute::MACHINE_TYPES.into_iter().find_map(|name| {
        let mut values = machine.devices.nics.values().map(|nic| text(nic, name));
        let first = values.next()??;
        let is_first = values.all(|value| value == Some(first));
        is_first.then(|| MachineType::Attribute(name, first.to_owned()))
    });
    published
        .or_else(|| machine.type_label.clone().map(|(name, it)| MachineType::NodeLabel(name, it)))
}

/// The attribute with the bus ID that all NICs of a machine have.
fn address_attribute(question: Question<'_>, machine: &Machine<'_>) -> Option<&'static str> {
    let own = question.nic_class.driver().address_attribute;
    std::iter::once(attribute::PCI_BUS_ID).chain(own).find(|name| machine.nics_have(name))
}

impl PinnedCell {
    fn as_cell(&self) -> Cell {
        Cell {
            key: self.key.clone(),
            gpus: self.gpus.clone(),
            nics: self.nics.clone(),
            physical: self.physical.clone(),
        }
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
