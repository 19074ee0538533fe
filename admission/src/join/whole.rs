//! Whole machines by plain counts. If the pod takes all GPUs of a node, and all NICs or
//! all NICs near a GPU, then every GPU has its own near NICs without any constraint. The
//! search is short; with pairs it would take millions of steps.

use super::form::{Apart, CellWay, Form, WAYS_MAX, Way};
use super::{Candidate, Question};
use crate::demand::Demand;
use crate::nearness::Nearness;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use std::collections::BTreeSet;
use topology_graph::{PciAddress, ShapeHash};

/// Candidates without a list of devices, and with one for nodes with spare NICs.
pub(super) fn propose(question: Question<'_>, nearness: Nearness) -> Vec<Candidate> {
    let Some(counts) = question.counts.filter(|_| question.demand.blocks > 1) else {
        return Vec::new();
    };
    let all = all(question, counts, nearness);
    all.into_iter().chain(listed(question, counts, nearness)).collect()
}

/// The candidate for all devices of a node.
fn all(question: Question<'_>, counts: &Demand, nearness: Nearness) -> Option<Candidate> {
    let machines = question.machines;
    let is_whole = |machine: &Machine<'_>| is_whole(machine, question.demand, nearness);
    let larger = |machine: &Machine<'_>| {
        let devices = &machine.devices;
        devices.gpus.len() >= counts.gpus as usize
            && devices.nics.len() >= counts.nics as usize
            && !is_whole(machine)
    };
    let shapes = |wanted: &dyn Fn(&Machine<'_>) -> bool| -> BTreeSet<ShapeHash> {
        machines.iter().filter(|machine| wanted(machine)).map(Machine::shape).collect()
    };
    let (whole, wrong) = (shapes(&is_whole), shapes(&larger));
    let serves: Vec<_> = machines
        .iter()
        .map(|machine| {
            is_whole(machine)
                && !wrong.contains(&machine.shape())
                && machine.nics_have(attribute::SHAPE)
        })
        .collect();
    serves.contains(&true).then(|| Candidate {
        join: "whole",
        why: "the pod takes every GPU and NIC of its node, so that each GPU has its own NICs \
              near it without any constraint"
            .to_owned(),
        nearness,
        demand: counts.clone(),
        // Larger machines may be added at any time, so the claim names the shapes.
        form: Form {
            ways: vec![Way::Any],
            only: Some(whole.difference(&wrong).copied().collect()),
            apart: Apart::Kind,
        },
        serves,
    })
}

/// The candidate for all GPUs, and the NICs near them by bus ID: one way per shape.
fn listed(question: Question<'_>, counts: &Demand, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, machines, driver, .. } = question;
    if machines.iter().all(|machine| is_whole(machine, demand, nearness)) {
        return None;
    }
    let near: Vec<_> = machines.iter().map(|machine| near(machine, question, nearness)).collect();
    // Only the kind of a device keeps several shapes apart.
    let most = if driver.kind_attribute.is_some() { WAYS_MAX } else { 1 };
    let ways = ways(&near, most);
    let serves: Vec<_> =
        near.iter().map(|way| way.as_ref().is_some_and(|way| ways.contains(way))).collect();
    serves.contains(&true).then(|| Candidate {
        join: "whole",
        why: "the pod takes every GPU of its node and every NIC that is near one, so that each \
              GPU has its own NICs near it without any constraint"
            .to_owned(),
        nearness,
        demand: counts.clone(),
        form: Form {
            ways: ways.into_iter().map(Way::Cell).collect(),
            only: None,
            apart: Apart::Kind,
        },
        serves,
    })
}

/// The list for each shape, in the order of the machines.
pub(super) fn ways(near: &[Option<CellWay>], most: usize) -> Vec<CellWay> {
    let mut ways: Vec<CellWay> = Vec::new();
    for way in near.iter().flatten() {
        let is_known = ways.iter().any(|known| known.shape == way.shape);
        if !is_known && ways.len() < most {
            ways.push(way.clone());
        }
    }
    ways
}

/// Whether the demand takes all devices of the machine.
fn is_whole(machine: &Machine<'_>, demand: &Demand, nearness: Nearness) -> bool {
    let devices = &machine.devices;
    devices.gpus.len() == demand.all_gpus() as usize
        && devices.nics.len() == demand.all_nics() as usize
        && demand.fits(&nearness.cells(machine))
}

/// The GPUs and NICs of the machine's cells, if the demand takes all of them and the NICs
/// have the attributes that a list needs.
pub(super) fn near(
    machine: &Machine<'_>,
    question: Question<'_>,
    nearness: Nearness,
) -> Option<CellWay> {
    let demand = question.demand;
    let mut cells = nearness.cells(machine);
    cells.retain(|cell| demand.capacity(cell) > 0);
    let gpus: BTreeSet<PciAddress> = cells.iter().flat_map(|cell| cell.gpus.clone()).collect();
    let nics: BTreeSet<PciAddress> = cells.iter().flat_map(|cell| cell.nics.clone()).collect();
    let takes_all = gpus.len() == demand.all_gpus() as usize
        && nics.len() == demand.all_nics() as usize
        && demand.fits(&cells);
    let tells = |nic: &PciAddress| {
        let nic = machine.devices.nics[nic];
        let kind = question.driver.kind_attribute;
        text(nic, attribute::SHAPE).is_some()
            && text(nic, attribute::PCI_BUS_ID).is_some()
            && kind.is_none_or(|kind| text(nic, kind) == Some(NIC_KIND))
    };
    (takes_all && nics.iter().all(tells)).then(|| CellWay {
        shape: machine.shape(),
        gpus: gpus.into_iter().collect(),
        nics: nics.into_iter().collect(),
    })
}
