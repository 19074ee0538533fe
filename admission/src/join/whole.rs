//! Whole machines by plain counts: where the pod takes all GPUs and all NICs of
//! a node, every GPU has its own NICs near it without any constraint, and the
//! search is short where pairs would take millions of steps.

use super::form::{Apart, Form, Way};
use super::{Candidate, Question};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use std::collections::BTreeSet;
use topology_graph::ShapeHash;

pub(super) fn propose(question: Question<'_>, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, machines, .. } = question;
    let counts = question.counts.filter(|_| demand.blocks > 1)?;
    let (gpus, nics) = (demand.all_gpus() as usize, demand.all_nics() as usize);
    let is_whole = |machine: &Machine<'_>| {
        let devices = &machine.devices;
        devices.gpus.len() == gpus
            && devices.nics.len() == nics
            && demand.fits(&nearness.cells(machine))
    };
    let larger = |machine: &Machine<'_>| {
        let devices = &machine.devices;
        devices.gpus.len() >= gpus && devices.nics.len() >= nics && !is_whole(machine)
    };
    let shapes = |wanted: &dyn Fn(&Machine<'_>) -> bool| -> BTreeSet<ShapeHash> {
        machines.iter().filter(|machine| wanted(machine)).map(Machine::shape).collect()
    };
    let (whole, wrong) = (shapes(&is_whole), shapes(&larger));
    let serves: Vec<_> = machines
        .iter()
        .map(|machine| is_whole(machine) && !wrong.contains(&machine.shape()))
        .collect();
    serves.contains(&true).then(|| Candidate {
        join: "whole",
        why: "the pod takes every GPU and NIC of its node, so that each GPU has its own NICs \
              near it without any constraint"
            .to_owned(),
        nearness,
        demand: counts.clone(),
        // Larger machines may come at any time: the claim says which it means.
        form: Form {
            ways: vec![Way::Any],
            only: Some(whole.difference(&wrong).copied().collect()),
            apart: Apart::Kind,
        },
        serves,
    })
}
