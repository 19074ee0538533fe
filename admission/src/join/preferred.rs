//! Preferred alignment: a claim tries near devices first, then any that fit.

use super::attributes::{attributes, way};
use super::form::{Apart, CellWay, Form, WAYS_MAX, Way};
use super::{Candidate, Question, UNALIGNED, cells, whole as wholes};
use crate::nearness::Nearness;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::machines::Machine;
use cluster_model::node_devices::text;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use topology_graph::{Cell, PciAddress};

/// The GPUs and NICs of a cell.
type Devices = (Vec<PciAddress>, Vec<PciAddress>);

/// Candidates that start at the requested nearness, or at the best available one, and go
/// down to the farthest level that still counts as near, best first.
pub(crate) fn propose(question: Question<'_>, asked: Option<Nearness>) -> Vec<Candidate> {
    let weakest = Nearness::weakest(question.machines);
    let from = |nearness: &Nearness| asked.is_none_or(|asked| *nearness >= asked);
    let rungs: Vec<_> = Nearness::levels(question.machines).filter(from).collect();
    let ladders = ladders(question, &rungs, weakest);
    if question.machines.iter().all(|machine| !question.demand.fits(&weakest.cells(machine))) {
        return vec![unaligned(question, weakest)];
    }
    let tiers = ladders.iter().filter_map(|ladder| candidate(question, ladder));
    let spare = rungs.into_iter().find_map(|nearness| whole_or_any(question, nearness));
    tiers.chain(whole(question, weakest)).chain(spare).collect()
}

/// The possible ladders of these levels: first those that reach the weakest level, then
/// those with most levels, then those that start nearest. Whether a claim has room for a
/// ladder is checked later.
fn ladders(question: Question<'_>, rungs: &[Nearness], weakest: Nearness) -> Vec<Vec<Nearness>> {
    let rungs: Vec<_> = rungs
        .iter()
        .copied()
        .map(|nearness| (nearness, serving(question, nearness)))
        .filter(|(_, serving)| serving.iter().any(|cells| !cells.is_empty()))
        .collect();
    let of_weakest = serving(question, weakest);
    let picks = (1..1_u32 << rungs.len())
        .map(|set| rungs.iter().enumerate().filter(move |(i, _)| set >> i & 1 == 1));
    let ladders = picks.filter_map(|picked| {
        let picked: Vec<_> = picked.map(|(_, rung)| rung).collect();
        let repeats = picked.windows(2).any(|two| adds_nothing(&two[0].1, &two[1].1));
        let reaches = picked.last().is_some_and(|(_, serving)| *serving == of_weakest);
        let ladder: Vec<_> = picked.iter().map(|(nearness, _)| *nearness).collect();
        (!repeats).then_some((Reverse(reaches), Reverse(ladder.len()), ladder))
    });
    let ladders: BTreeSet<_> = ladders.collect();
    ladders.into_iter().map(|(_, _, ladder)| ladder).collect()
}

/// Whether all cells of the farther level are also cells of the nearer one.
fn adds_nothing(nearer: &[BTreeSet<Devices>], farther: &[BTreeSet<Devices>]) -> bool {
    nearer.iter().zip(farther).all(|(nearer, farther)| farther.is_subset(nearer))
}

/// The cells that can serve a block, for each machine.
fn serving(question: Question<'_>, nearness: Nearness) -> Vec<BTreeSet<Devices>> {
    let of_machine = |machine: &Machine<'_>| {
        let cells = nearness.cells(machine).into_iter();
        let serving = cells.filter(|cell| question.demand.capacity(cell) > 0);
        serving.map(|Cell { gpus, nics, .. }| (gpus, nics)).collect()
    };
    question.machines.iter().map(of_machine).collect()
}

/// Plain counts, if every machine with enough devices is used as a whole. There is no
/// other choice of devices, so near devices are always included.
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

/// Plain counts, first of the NICs near a GPU and then of any NICs, if the pod takes all
/// GPUs and the machine has spare NICs. No other choice would be near.
fn whole_or_any(question: Question<'_>, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, machines, .. } = question;
    let counts = question.counts.filter(|_| demand.blocks > 1 && all_have_kind(question))?;
    let near: Vec<_> =
        machines.iter().map(|machine| wholes::near(machine, question, nearness)).collect();
    let listed = wholes::ways(&near, WAYS_MAX - 1);
    let is_said = |(machine, near): (&Machine<'_>, &Option<CellWay>)| match near {
        Some(way) => listed.contains(way),
        None => !demand.fits(&nearness.cells(machine)),
    };
    let complete = !listed.is_empty() && machines.iter().zip(&near).all(is_said);
    complete.then(|| Candidate {
        join: "whole",
        why: "the pod takes every GPU of its node, and the NICs near them where they are free"
            .to_owned(),
        nearness,
        demand: counts.clone(),
        form: Form {
            ways: listed.into_iter().map(Way::Cell).chain([Way::Any]).collect(),
            only: None,
            apart: Apart::Kind,
        },
        serves: enough(question),
    })
}

/// Plain counts of any devices, if no machine can serve near ones.
pub(crate) fn unaligned(question: Question<'_>, nearness: Nearness) -> Candidate {
    let demand = question.counts.unwrap_or(question.demand);
    Candidate {
        join: UNALIGNED,
        why: format!(
            "near devices are preferred, and no node shape in this cluster can give these at \
             {nearness}; the pod gets any"
        ),
        nearness,
        demand: demand.clone(),
        form: Form { ways: vec![Way::Any], only: None, apart: Apart::Kind },
        serves: enough(question),
    }
}

/// The machines with enough devices, wherever they are.
fn enough(question: Question<'_>) -> Vec<bool> {
    let (gpus, nics) = (question.demand.all_gpus() as usize, question.demand.all_nics() as usize);
    let machines = question.machines.iter().map(|machine| &machine.devices);
    machines.map(|devices| devices.gpus.len() >= gpus && devices.nics.len() >= nics).collect()
}

fn candidate(question: Question<'_>, ladder: &[Nearness]) -> Option<Candidate> {
    if !all_have_kind(question) {
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
        demand: question.demand.clone(),
        form: Form { ways, only: None, apart: Apart::Kind },
        serves: enough(question),
    })
}

/// Whether all NICs have a kind attribute. It keeps alternatives apart, so a NIC without
/// it could not be allocated.
fn all_have_kind(question: Question<'_>) -> bool {
    let mut nics = question.machines.iter().flat_map(|machine| machine.devices.nics.values());
    let is_nic = |kind| nics.all(|nic| text(nic, kind) == Some(NIC_KIND));
    question.driver.kind_attribute.is_some_and(is_nic)
}

/// Selects by one attribute if it is right on all machines that could serve, otherwise
/// cell by cell. `None` if neither works for all of them.
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
