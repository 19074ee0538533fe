//! Whole machines by plain counts. If the pod takes all GPUs of a node, and all NICs or
//! all NICs near a GPU, then every GPU has its own near NICs without any constraint. The
//! search is short; with pairs it would take millions of steps.

use super::form::{Apart, Form, WAYS_MAX, Way};
use super::ways::{CellWays, MachineCells};
use super::{Candidate, Question, guarantee};
use crate::demand::Demand;
use crate::nearness::Nearness;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use cluster_model::published_device::PublishedDevice as _;
use std::collections::BTreeSet;
use topology_graph::{Cell, PciAddress, ShapeHash};

/// Candidates without a list of devices, and with one for nodes with spare NICs.
pub(super) fn propose(question: Question<'_>, levels: &[Option<Nearness>]) -> Vec<Candidate> {
    let Some(counts) = question.counts.filter(|_| question.demand.blocks > 1) else {
        return Vec::new();
    };
    let all = all(question, counts, levels);
    all.into_iter().chain(listed(question, counts, levels)).collect()
}

/// Whether a machine has at least these devices.
fn is_enough(machine: &Machine<'_>, counts: &Demand) -> bool {
    let devices = &machine.devices;
    devices.gpus.len() >= counts.gpus as usize && devices.nics.len() >= counts.nics as usize
}

/// The candidate for all devices of a node.
fn all(question: Question<'_>, counts: &Demand, levels: &[Option<Nearness>]) -> Option<Candidate> {
    let machines = question.machines;
    let whole: Vec<bool> = machines
        .iter()
        .zip(levels)
        .map(|(machine, level)| level.is_some_and(|it| is_whole(machine, question.demand, it)))
        .collect();
    let shapes = |wanted: &dyn Fn(&Machine<'_>, bool) -> bool| -> BTreeSet<ShapeHash> {
        let wanted =
            machines.iter().zip(&whole).filter(|(machine, whole)| wanted(machine, **whole));
        wanted.flat_map(|(machine, _)| machine.shapes.iter().copied()).collect()
    };
    let right = shapes(&|_, whole| whole);
    let wrong = shapes(&|machine, whole| !whole && is_enough(machine, counts));
    let serves: Vec<_> = machines
        .iter()
        .zip(&whole)
        .map(|(machine, whole)| {
            *whole && machine.shapes.is_disjoint(&wrong) && machine.nics_have(attribute::SHAPE)
        })
        .collect();
    serves.contains(&true).then(|| {
        let (nearness, levels) = guarantee(question, levels, &serves);
        Candidate {
            join: "whole",
            why: "the pod takes every GPU and NIC of its node, so that each GPU has its own NICs \
                  near it without any constraint"
                .to_owned(),
            nearness,
            levels,
            demand: counts.clone(),
            // Larger machines may be added at any time, so the claim names the shapes.
            form: Form {
                ways: vec![Way::Any],
                only: Some(right.difference(&wrong).copied().collect()),
                apart: Apart::Kind,
            },
            serves,
            far_because: super::FAR,
            rungs: None,
        }
    })
}

/// The candidate for all GPUs, and the NICs near them by bus ID.
fn listed(
    question: Question<'_>,
    counts: &Demand,
    levels: &[Option<Nearness>],
) -> Option<Candidate> {
    let Question { demand, machines, driver, .. } = question;
    let known = || machines.iter().zip(levels);
    if known().all(|(machine, level)| level.is_some_and(|it| is_whole(machine, demand, it))) {
        return None;
    }
    let near: Vec<_> = known().map(|(machine, level)| near(machine, question, (*level)?)).collect();
    // Only the kind of a device keeps several shapes apart.
    let most = if driver.kind_attribute.is_some() { WAYS_MAX } else { 1 };
    let (ways, serves) = ways(question, &near, most);
    serves.contains(&true).then(|| {
        let (nearness, levels) = guarantee(question, levels, &serves);
        Candidate {
            join: "whole",
            why:
                "the pod takes every GPU of its node and every NIC that is near one, so that each \
                  GPU has its own NICs near it without any constraint"
                    .to_owned(),
            nearness,
            levels,
            demand: counts.clone(),
            form: Form { ways, only: None, apart: Apart::Kind },
            serves,
            far_because: super::FAR,
            rungs: None,
        }
    })
}

/// The lists of the machines, those with most nodes first, and which machines they serve.
pub(super) fn ways(
    question: Question<'_>,
    near: &[Option<Cell>],
    most: usize,
) -> (Vec<Way>, Vec<bool>) {
    let mut ways = CellWays::default();
    let serves = question
        .machines
        .iter()
        .zip(near)
        .map(|(machine, near)| {
            near.as_ref().is_some_and(|near| {
                ways.add(
                    &MachineCells::new(machine, vec![near.clone()]),
                    std::slice::from_ref(near),
                    most,
                )
            })
        })
        .collect();
    (ways.into_ways().map(Way::Cell).collect(), serves)
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
) -> Option<Cell> {
    let demand = question.demand;
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
            let kind = question.driver.kind_attribute;
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
