//! The pinned cells join: a claim for the devices of named cells. It is the last resort
//! if no attribute ties GPUs to NICs and alternatives cannot be kept apart.
//!
//! This is the case beside an upstream DRANET on Azure: its NICs publish the machine
//! type, but no attribute in common with GPUs. People there write claims by bus ID by
//! hand. The claim is limited to one machine type, because bus IDs mean other cells
//! elsewhere. The cells are chosen for each pod: see [`crate::pin`].

use super::Candidate;
use super::form::{Form, Way};
use super::pinned_cell::{MachineType, PinnedCell};
use crate::fleet::Fleet;
use crate::nearness::Nearness;
use crate::promise::{Promise, Promises};
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use cluster_model::published_device::PublishedDevice as _;
use std::collections::BTreeMap;
use topology_graph::Cell;

/// The most claims per demand. Blocks can be spread over cells in many ways, and each
/// claim's cost is measured.
const PINS_MAX: usize = 32;

/// The name of the join.
const JOIN: &str = "pinned cells";

/// The machine types whose cells can be pinned, each with an example.
pub(crate) fn machine_types<'q, 'm>(
    fleet: Fleet<'q, 'm>,
) -> BTreeMap<MachineType, &'q Machine<'m>> {
    let all = fleet.machines.iter();
    all.filter_map(|machine| Some((machine_type(machine)?, machine))).collect()
}

/// One candidate for each choice of cells on a machine type.
pub(crate) fn propose<'m>(
    fleet: Fleet<'_, 'm>,
    of: &MachineType,
    nearness: Nearness,
) -> Vec<Candidate<'m>> {
    let all = choices(fleet, nearness, of);
    let step = all.len().div_ceil(PINS_MAX).max(1);
    all.into_iter()
        .step_by(step)
        .filter_map(|cells| candidate(fleet, nearness, &cells))
        .chain(whole(fleet, of, nearness))
        .collect()
}

/// The candidate for every device of machines of a type whose NICs publish no bus ID.
fn whole<'m>(fleet: Fleet<'_, 'm>, of: &MachineType, nearness: Nearness) -> Option<Candidate<'m>> {
    let is_one_block = fleet.demand().blocks == 1;
    let counts = fleet.terms.counts.as_ref().or_else(|| is_one_block.then_some(fleet.demand()))?;
    let mut machines = of_type(fleet, of);
    if !machines.all(|machine| takes_all(fleet, machine, nearness) || !fleet.has_enough(machine)) {
        return None;
    }
    let promises = Promises::of_each(fleet.machines, |machine| {
        let is_served =
            machine_type(machine).as_ref() == Some(of) && takes_all(fleet, machine, nearness);
        Promise::best(is_served.then_some(nearness), false)
    });
    let gpus = of_type(fleet, of).flat_map(|machine| machine.devices.gpus.keys().copied());
    let mut cell = PinnedCell {
        key: "every device".to_owned(),
        machine: of.clone(),
        address_attribute: None,
        gpus: Vec::new(),
        nics: Vec::new(),
        physical: BTreeMap::new(),
    };
    super::cells::extend(&mut cell.gpus, gpus.collect());
    let why = "the pod takes every GPU and NIC of its node, so that each GPU has its own NICs near it \
               without any constraint, and is limited to nodes of one type";
    let form = Form::by_block(vec![vec![Way::Pinned(cell)]]);
    let candidate = Candidate::new(fleet, (JOIN, why.to_owned()), form, promises);
    Candidate { demand: counts.clone(), ..candidate }.if_any_served()
}

/// The machines of a type.
fn of_type<'q, 'm>(
    fleet: Fleet<'q, 'm>,
    of: &MachineType,
) -> impl Iterator<Item = &'q Machine<'m>> {
    fleet.machines.iter().filter(move |it| machine_type(it).as_ref() == Some(of))
}

/// Whether the pod takes every device of a machine whose NICs publish no bus ID.
fn takes_all(fleet: Fleet<'_, '_>, machine: &Machine<'_>, nearness: Nearness) -> bool {
    fleet.takes_all(machine, nearness)
        && address_attribute(fleet, machine).is_none()
        && machine.devices.gpus.values().all(|gpu| gpu.published_address().is_some())
}

/// Every choice of cells for the blocks on machines of a type: one cell per block.
fn choices(fleet: Fleet<'_, '_>, nearness: Nearness, of: &MachineType) -> Vec<Vec<PinnedCell>> {
    let cells = cells(fleet, nearness, of);
    let rooms: Vec<_> = cells.iter().map(|cell| fleet.demand().capacity(&cell.as_cell())).collect();
    let spread = fleet.demand().spreads(&rooms);
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
fn cells(fleet: Fleet<'_, '_>, nearness: Nearness, of: &MachineType) -> Vec<PinnedCell> {
    let mut cells: BTreeMap<String, PinnedCell> = BTreeMap::new();
    for machine in of_type(fleet, of) {
        let Some(address_attribute) = address_attribute(fleet, machine) else { continue };
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
fn candidate<'m>(
    fleet: Fleet<'_, 'm>,
    nearness: Nearness,
    blocks: &[PinnedCell],
) -> Option<Candidate<'m>> {
    let demand = fleet.demand();
    let of = &blocks.first()?.machine;
    let mut machines = of_type(fleet, of);
    if !machines.all(|machine| blocks.iter().all(|cell| cell.is_near_on(machine, nearness))) {
        return None;
    }
    let mut cells = blocks.to_vec();
    cells.dedup();
    let counts = cells.iter().map(|cell| blocks.iter().filter(|block| *block == cell).count());
    let counts: Vec<usize> = counts.collect();
    let promises = Promises::of_each(fleet.machines, |machine| {
        let is_served = machine_type(machine).as_ref() == Some(of)
            && address_attribute(fleet, machine) == cells[0].address_attribute
            && cells
                .iter()
                .zip(&counts)
                .all(|(cell, count)| demand.capacity(&cell.on(machine)) >= *count);
        Promise::best(is_served.then_some(nearness), false)
    });
    // Blocks in the same cell are merged if all containers share the GPUs.
    let sizes: Vec<_> = counts.iter().filter_map(|count| u32::try_from(*count).ok()).collect();
    let (demand, ways) = match fleet.terms.counts {
        Some(_) => (demand.in_sizes(&sizes), cells.as_slice()),
        None => (demand.clone(), blocks),
    };
    let why = "GPUs and NICs publish no attribute in common, and the NICs none that tells them from \
               GPUs, so the claim lists the devices of cells that were chosen when the pod was created";
    let ways = ways.iter().map(|cell| vec![Way::Pinned(cell.clone())]);
    let form = Form::by_block(ways.collect());
    let candidate = Candidate::new(fleet, (JOIN, why.to_owned()), form, promises);
    Candidate { demand, ..candidate }.if_any_served()
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
fn address_attribute(fleet: Fleet<'_, '_>, machine: &Machine<'_>) -> Option<&'static str> {
    let own = fleet.terms.nic_class.driver().address_attribute;
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
