//! Preferred alignment: the near ways first, then anything that fits.

use super::attributes::{attributes, way};
use super::form::{Apart, Form, WAYS_MAX, Way};
use super::{Candidate, Question, cells};
use crate::nearness::Nearness;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::node_devices::text;
use topology_graph::Level;

/// Candidates for this nearness, or for the best that there is, best first.
pub(crate) fn propose(question: Question<'_>, asked: Option<Nearness>) -> Vec<Candidate> {
    let numa = Nearness::Level(Level::Numa);
    let ladders: &[&[Nearness]] = match &asked {
        Some(nearness) => &[&[*nearness]],
        None => &[&[Nearness::Partner, numa], &[numa], &[Nearness::Partner]],
    };
    let weakest = asked.unwrap_or(numa);
    if question.machines.iter().all(|machine| !question.demand.fits(&weakest.cells(machine))) {
        return vec![unaligned(question, weakest)];
    }
    let tiers = ladders.iter().filter_map(|ladder| candidate(question, ladder));
    tiers.chain(whole(question, weakest)).collect()
}

/// Plain counts, where every machine that has enough is taken whole: no other
/// choice of devices is left, and what can be near is.
fn whole(question: Question<'_>, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, machines, .. } = question;
    let (gpus, nics) = (demand.all_gpus() as usize, demand.all_nics() as usize);
    let serves = enough(question);
    let exact = |(machine, serves): (&Machine<'_>, &bool)| {
        let devices = &machine.devices;
        !serves || (devices.gpus.len() == gpus && devices.nics.len() == nics)
    };
    let counts = question.counts.filter(|_| machines.iter().zip(&serves).all(exact))?;
    Some(Candidate {
        join: "whole",
        why: "the pod takes every GPU and NIC of its node, so that no nearer ones are left"
            .to_owned(),
        nearness,
        demand: counts.clone(),
        form: Form { ways: vec![Way::Any], only: None, apart: Apart::Kind },
        serves,
    })
}

/// Plain counts, where no machine can ever be near: anything that fits.
fn unaligned(question: Question<'_>, nearness: Nearness) -> Candidate {
    let demand = question.counts.unwrap_or(question.demand);
    Candidate {
        join: "any",
        why: format!(
            "near devices are preferred, and no node shape here can give these at {nearness}; the \
             pod gets any"
        ),
        nearness,
        demand: demand.clone(),
        form: Form { ways: vec![Way::Any], only: None, apart: Apart::Kind },
        serves: enough(question),
    }
}

/// The machines that have as many devices, wherever they are.
fn enough(question: Question<'_>) -> Vec<bool> {
    let (gpus, nics) = (question.demand.all_gpus() as usize, question.demand.all_nics() as usize);
    let machines = question.machines.iter().map(|machine| &machine.devices);
    machines.map(|devices| devices.gpus.len() >= gpus && devices.nics.len() >= nics).collect()
}

fn candidate(question: Question<'_>, ladder: &[Nearness]) -> Option<Candidate> {
    let Question { demand, driver, machines, .. } = question;
    // The ways are kept apart by the kind; a NIC without it could take none.
    let kind = driver.kind_attribute?;
    let has_kind = |machine: &Machine<'_>| {
        machine.devices.nics.values().all(|nic| text(nic, kind) == Some(NIC_KIND))
    };
    if !machines.iter().all(has_kind) {
        return None;
    }
    let mut ways = Vec::new();
    for nearness in ladder {
        let room = WAYS_MAX - 1 - ways.len();
        ways.extend(ways_at(question, *nearness, room)?);
    }
    ways.push(Way::Any);
    let tried: Vec<_> = ladder.iter().map(ToString::to_string).collect();
    Some(Candidate {
        join: "tiers",
        why: format!(
            "near devices are preferred, not required: {}, then any, each tried in this order",
            tried.join(", then ")
        ),
        nearness: *ladder.first()?,
        demand: demand.clone(),
        form: Form { ways, only: None, apart: Apart::Kind },
        serves: enough(question),
    })
}

/// By one attribute where it is right on all machines that could serve, else
/// cell by cell. `None` where neither can say it for all of them.
fn ways_at(question: Question<'_>, nearness: Nearness, room: usize) -> Option<Vec<Way>> {
    let Question { demand, driver, machines, .. } = question;
    if nearness == Nearness::Partner && demand.gpus > 1 {
        return None;
    }
    let mut by_attribute =
        attributes(driver).into_iter().filter_map(|known| way(question, nearness, known));
    if let Some(way) = by_attribute.next() {
        return (room > 0).then(|| vec![way]);
    }
    let cells = cells::ways(question, nearness, room);
    let listed = |machine: &Machine<'_>| {
        let there = nearness.cells(machine);
        let serving = there.iter().filter(|cell| demand.capacity(cell) > 0).count();
        let known = cells.iter().filter(|way| way.shape == machine.shape()).count();
        known >= serving
    };
    let complete = !cells.is_empty() && machines.iter().all(listed);
    complete.then(|| cells.into_iter().map(Way::Cell).collect())
}
