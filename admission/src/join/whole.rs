//! Whole machines by plain counts. If the pod takes all GPUs of a node, and all NICs or
//! all NICs near a GPU, then every GPU has its own near NICs without any constraint. The
//! search is short; with pairs it would take millions of steps.

use super::Candidate;
use super::form::{Apart, Form, WAYS_MAX, Way};
use super::ways::{CellWays, MachineCells};
use crate::fleet::Fleet;
use crate::nearness::Nearness;
use crate::promise::{Levels, Nodes, Promises};
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use cluster_model::published_device::PublishedDevice as _;
use std::collections::BTreeSet;
use std::slice;
use topology_graph::{Cell, PciAddress, ShapeHash};

/// Candidates without a list of devices, and with one for nodes with spare NICs.
pub(crate) fn propose<'m>(fleet: Fleet<'_, 'm>, levels: &Levels<'m>) -> Vec<Candidate<'m>> {
    let Some(counts) = fleet.terms.counts.as_ref().filter(|_| fleet.demand().blocks > 1) else {
        return Vec::new();
    };
    let all = all(fleet, levels).into_iter().chain(listed(fleet, levels));
    all.map(|candidate| Candidate { demand: counts.clone(), ..candidate }).collect()
}

/// The candidate for all devices of a node.
fn all<'m>(fleet: Fleet<'_, 'm>, levels: &Levels<'m>) -> Option<Candidate<'m>> {
    let (whole, others): (Vec<&Machine<'m>>, Vec<_>) =
        fleet.machines.iter().partition(|machine| is_whole(machine, fleet, levels));
    let others = others.into_iter().filter(|machine| fleet.has_enough(machine));
    let wrong: BTreeSet<ShapeHash> = others.flat_map(|it| it.shapes.iter().copied()).collect();
    let right: BTreeSet<ShapeHash> = whole.iter().flat_map(|it| it.shapes.clone()).collect();
    let served = whole.iter().filter(|machine| {
        machine.shapes.is_disjoint(&wrong) && machine.nics_have(attribute::SHAPE)
    });
    let served = served.map(|machine| machine.devices.node).collect();
    let why = "the pod takes every GPU and NIC of its node, so that each GPU has its own NICs near it \
               without any constraint";
    // Larger machines may be added at any time, so the claim names the shapes.
    let form = Form::new(vec![Way::Any], Apart::Kind).only(&right - &wrong);
    let promises = Promises::at(levels, &served);
    Candidate::new(fleet, ("whole", why.to_owned()), form, promises).if_any_served()
}

/// The candidate for all GPUs, and the NICs near them by bus ID.
fn listed<'m>(fleet: Fleet<'_, 'm>, levels: &Levels<'m>) -> Option<Candidate<'m>> {
    if fleet.machines.iter().all(|machine| is_whole(machine, fleet, levels)) {
        return None;
    }
    // Only the kind of a device keeps several shapes apart.
    let most = if fleet.driver().kind_attribute.is_some() { WAYS_MAX } else { 1 };
    let (ways, served) = ways(fleet, levels, most);
    let why = "the pod takes every GPU of its node and every NIC that is near one, so that each GPU has \
               its own NICs near it without any constraint";
    let promises = Promises::at(levels, &served);
    let form = Form::new(ways, Apart::Kind);
    Candidate::new(fleet, ("whole", why.to_owned()), form, promises).if_any_served()
}

/// The lists of the machines, those with most nodes first, and the machines that they serve.
pub(super) fn ways<'m>(
    fleet: Fleet<'_, 'm>,
    levels: &Levels<'m>,
    most: usize,
) -> (Vec<Way>, Nodes<'m>) {
    let mut ways = CellWays::default();
    let mut served = Nodes::new();
    for machine in fleet.machines {
        let near = levels.on(machine).and_then(|level| near(machine, fleet, level));
        let Some(near) = near else { continue };
        let cells = MachineCells::new(machine, vec![near.clone()]);
        if ways.add(&cells, slice::from_ref(&near), most) {
            served.insert(machine.devices.node);
        }
    }
    (ways.into_ways().map(Way::Cell).collect(), served)
}

/// Whether the demand takes all devices of the machine, near each other as its level says.
fn is_whole(machine: &Machine<'_>, fleet: Fleet<'_, '_>, levels: &Levels<'_>) -> bool {
    levels.on(machine).is_some_and(|level| fleet.takes_all(machine, level))
}

/// The GPUs and NICs of the machine's cells, if the demand takes all of them and the NICs
/// have the attributes that a list needs.
fn near(machine: &Machine<'_>, fleet: Fleet<'_, '_>, nearness: Nearness) -> Option<Cell> {
    let demand = fleet.demand();
    let mut cells = nearness.cells(machine);
    cells.retain(|cell| demand.capacity(cell) > 0);
    let gpus: BTreeSet<PciAddress> = cells.iter().flat_map(|cell| cell.gpus.clone()).collect();
    let nics: BTreeSet<PciAddress> = cells.iter().flat_map(|cell| cell.nics.clone()).collect();
    let takes_all = gpus.len() == demand.all_gpus() as usize
        && nics.len() == demand.all_nics() as usize
        && demand.fits(&cells);
    (takes_all
        && nics.iter().all(|nic| {
            let nic = machine.devices.nics[nic];
            let kind = fleet.driver().kind_attribute;
            text(nic, attribute::SHAPE).is_some()
                && text(nic, attribute::PCI_BUS_ID).is_some()
                && kind.is_none_or(|kind| text(nic, kind) == Some(NIC_KIND))
        })
        && gpus.iter().all(|gpu| machine.devices.gpus[gpu].published_address().is_some()))
    .then(|| Cell {
        key: String::new(),
        gpus: gpus.into_iter().collect(),
        nics: nics.into_iter().collect(),
        physical: cells.into_iter().flat_map(|cell| cell.physical).collect(),
    })
}
