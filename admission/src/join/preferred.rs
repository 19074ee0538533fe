//! Preferred alignment: a claim tries near devices first, then any that fit.
//!
//! The near devices of each machine are its own ladder of levels. Rungs are added one by one: first
//! one rung for each present machine, those with most nodes first, then their other rungs, then the
//! rungs of remembered machines. A claim without room for all leaves out the last ones, so no
//! machine takes a rung from one with more nodes, and every machine has any devices as its last
//! resort.
//!
//! [`extended`] adds the rungs of remembered machines to a claim that was chosen for the present ones.

use super::attributes::{attributes, nics_are, way};
use super::cells::serving;
use super::form::{Apart, Form, WAYS_MAX, Way};
use super::ways::{CellWays, MachineCells};
use super::{Candidate, Question, UNALIGNED, full_cells, whole as wholes};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use topology_graph::{Cell, PciAddress};

/// Candidates for preferred alignment, best first.
#[derive(Debug)]
pub(crate) struct Preferred {
    /// With near devices on each present machine that has any.
    pub(crate) complete: Vec<Candidate>,
    /// With plain counts, if the pod takes whole machines.
    pub(crate) whole: Vec<Candidate>,
    /// With near devices on some machines.
    pub(crate) partial: Vec<Candidate>,
}

/// The GPUs and NICs of a cell.
type Devices = (Vec<PciAddress>, Vec<PciAddress>);

/// Candidates that start at the requested nearness, or at the best available one, and go
/// down to the farthest level that still counts as near.
pub(crate) fn propose(question: Question<'_>, asked: Option<Nearness>) -> Preferred {
    let levels = levels_from(question, asked);
    let (mut complete, mut partial) = (Vec::new(), Vec::new());
    let ladder = Ladder::build(question, &levels);
    for state in ladder.states.iter().rev() {
        for state in [Some(state.clone()), ladder.without_pairs(state)].into_iter().flatten() {
            let Some(candidate) = ladder.candidate(&state) else { continue };
            let of_kind = if ladder.is_complete(&state) { &mut complete } else { &mut partial };
            of_kind.push(candidate);
        }
    }
    Preferred { complete, whole: counts(question, asked), partial }
}

/// The candidates that add rungs of the other machines to these rungs of the first ones, those with
/// most rungs first. The last one adds none.
pub(crate) fn extended(
    question: Question<'_>,
    asked: Option<Nearness>,
    rungs: &Rungs,
) -> Vec<Candidate> {
    let levels = levels_from(question, asked);
    let first = rungs.of_machines.len();
    let mut ladder = Ladder::empty(question, first);
    let Some(rungs) = ladder.padded(rungs) else { return Vec::new() };
    let nothing_added = rungs.clone();
    let all_added = ladder.extend(rungs, first..question.machines.len(), &levels);
    ladder.states.push(all_added);
    let states = ladder.states.iter().rev().chain([&nothing_added]);
    states.filter_map(|state| ladder.candidate(state)).collect()
}

/// The candidates without a ladder: plain counts, if the pod takes whole machines.
pub(crate) fn counts(question: Question<'_>, asked: Option<Nearness>) -> Vec<Candidate> {
    let weakest = Nearness::weakest(question.machines);
    let mut levels = levels_from(question, asked).into_iter();
    let spare = levels.find_map(|nearness| whole_or_any(question, nearness));
    whole(question, weakest).into_iter().chain(spare).collect()
}

/// The levels from the requested one on, or from the weakest one if that is nearer.
fn levels_from(question: Question<'_>, asked: Option<Nearness>) -> Vec<Nearness> {
    let from = asked.map(|asked| asked.min(Nearness::weakest(question.machines)));
    let levels = Nearness::levels(question.machines);
    levels.filter(|level| from.is_none_or(|from| *level >= from)).collect()
}

/// The ladders of all machines, as far as a claim has room.
struct Ladder<'a> {
    question: Question<'a>,
    /// The near devices of each machine, by level.
    near: Vec<NearDevices>,
    /// The joins by attribute of each level, with their index among those of the driver, and which
    /// machines they serve.
    attributes: BTreeMap<Nearness, Vec<(usize, Way, Vec<bool>)>>,
    /// With each number of ways, the state in which most rungs were added.
    states: Vec<Rungs>,
}

/// The near devices of a machine, by level.
type NearDevices = BTreeMap<Nearness, (MachineCells, Vec<Cell>)>;

/// Rungs that were added.
#[derive(Clone, Debug)]
pub(crate) struct Rungs {
    attributes: BTreeMap<(Nearness, usize), Way>,
    cells: BTreeMap<Nearness, CellWays>,
    /// The levels of each machine.
    of_machines: Vec<BTreeSet<Nearness>>,
}

impl<'a> Ladder<'a> {
    fn build(question: Question<'a>, levels: &[Nearness]) -> Self {
        let mut ladder = Self::empty(question, 0);
        let all = question.machines.len();
        let present = question.machines.iter().filter(|machine| machine.live_nodes() > 0).count();
        let rungs = ladder.extend(Rungs::none(all), 0..present, levels);
        let rungs = ladder.extend(rungs, present..all, levels);
        ladder.states.push(rungs);
        ladder
    }

    /// A ladder to which machines from this index on can be added.
    fn empty(question: Question<'a>, first: usize) -> Self {
        let machines = question.machines;
        let near = |(index, machine): (usize, &Machine<'_>)| {
            if index < first { NearDevices::new() } else { all_near(question, machine) }
        };
        Self {
            question,
            near: machines.iter().enumerate().map(near).collect(),
            attributes: Nearness::levels(machines)
                .map(|nearness| {
                    let all = vec![Some(nearness); machines.len()];
                    let known = attributes(question.driver).into_iter().enumerate();
                    let ways = known.filter_map(|(index, known)| {
                        way(question, &all, known).map(|(way, serves)| (index, way, serves))
                    });
                    (nearness, ways.collect())
                })
                .collect(),
            states: Vec::new(),
        }
    }

    /// Adds the rungs of these machines, and keeps the states on the way.
    fn extend(&mut self, mut rungs: Rungs, added: Range<usize>, levels: &[Nearness]) -> Rungs {
        let question = self.question;
        let all = Nearness::levels(question.machines);
        let nearer: Vec<_> = all.filter(|level| !levels.contains(level)).collect();
        let steps_at = |levels: &[Nearness]| -> Vec<(usize, Vec<Vec<Nearness>>)> {
            let machines = added.clone().map(|index| (index, &question.machines[index]));
            machines.map(|(index, machine)| (index, steps(question, machine, levels))).collect()
        };
        let (steps, nearer) = (steps_at(levels), steps_at(&nearer));
        for ((machine, steps), (_, nearer)) in steps.iter().zip(&nearer) {
            // The weakest level holds all near devices. If there is no room for it, nearer devices
            // than asked for are better than any.
            let mut weakest_first = steps.iter().rev().chain(nearer.iter().rev());
            weakest_first.any(|same| self.add(&mut rungs, *machine, same));
        }
        for (machine, steps) in &steps {
            for same in steps {
                self.add(&mut rungs, *machine, same);
            }
        }
        rungs
    }

    /// The rungs of the first machines among those of all, with the ways of this ladder. `None` if an
    /// attribute cannot serve one of them because of the others.
    fn padded(&self, rungs: &Rungs) -> Option<Rungs> {
        let mut rungs = rungs.clone();
        rungs.of_machines.resize(self.question.machines.len(), BTreeSet::new());
        for ((nearness, index), way) in &mut rungs.attributes {
            let mut known = self.attributes.get(nearness)?.iter();
            *way = known.find(|(known, ..)| known == index)?.1.clone();
        }
        Some(rungs)
    }

    /// Adds a rung by the first of these levels, whose cells are the same, that there is room for.
    /// Keeps the state before it if the rung needs more ways.
    fn add(&mut self, state: &mut Rungs, machine: usize, same: &[Nearness]) -> bool {
        if same.iter().any(|nearness| state.of_machines[machine].contains(nearness)) {
            return true;
        }
        for nearness in same {
            let Some(mut next) = self.with(state, machine, *nearness) else { continue };
            next.of_machines[machine].insert(*nearness);
            let before = std::mem::replace(state, next);
            if before.len() < state.len() && before.len() > 0 {
                self.states.push(before);
            }
            return true;
        }
        false
    }

    /// The state with the near devices of a machine by an attribute if it is right there,
    /// otherwise cell by cell. `None` if there is no room.
    fn with(&self, state: &Rungs, machine: usize, nearness: Nearness) -> Option<Rungs> {
        let mut state = state.clone();
        let room = (WAYS_MAX - 1).saturating_sub(state.len());
        let known = &self.attributes[&nearness];
        if let Some((index, way, _)) = known.iter().find(|(.., serves)| serves[machine]) {
            let is_known = state.attributes.insert((nearness, *index), way.clone());
            return (is_known.is_some() || room > 0).then_some(state);
        }
        let (kind, cells) = &self.near[machine][&nearness];
        let ways = state.cells.entry(nearness).or_default();
        let room = room + ways.len();
        (!cells.is_empty() && ways.add(kind, cells, room)).then_some(state)
    }

    /// The state without the rung of pairs, if these are no nearer than other devices of the next
    /// rung. If the search takes too many steps with both, that rung serves more.
    fn without_pairs(&self, state: &Rungs) -> Option<Rungs> {
        let paired = self.question.machines.iter().zip(&state.of_machines);
        let mut paired = paired.filter(|(_, rungs)| rungs.contains(&Nearness::Partner)).peekable();
        paired.peek()?;
        let are_spare =
            paired.all(|(machine, rungs)| rungs.len() > 1 && !machine.has_nearer_partners());
        are_spare.then(|| state.without(Nearness::Partner))
    }

    /// Returns true if each present machine with near devices has a rung.
    fn is_complete(&self, state: &Rungs) -> bool {
        let machines = self.question.machines.iter().zip(&self.near).zip(&state.of_machines);
        machines.into_iter().all(|((machine, near), rungs)| {
            !rungs.is_empty()
                || machine.live_nodes() == 0
                || near.values().all(|(_, cells)| cells.is_empty())
        })
    }

    fn candidate(&self, state: &Rungs) -> Option<Candidate> {
        let levels: Vec<_> = state.of_machines.iter().map(|rungs| rungs.first().copied()).collect();
        let tried: Vec<_> = state.levels().iter().map(ToString::to_string).collect();
        Some(Candidate {
            join: "tiers",
            why: format!(
                "near devices are preferred, not required: {}, then any, each tried in this order",
                tried.join(", then ")
            ),
            nearness: levels.iter().flatten().next().copied()?,
            levels,
            demand: self.question.demand.clone(),
            form: Form { ways: state.ways(), only: None, apart: Apart::Kind },
            serves: enough(self.question),
            far_because: super::FAR,
            rungs: Some(state.clone()),
        })
    }
}

impl Rungs {
    fn none(machines: usize) -> Self {
        Self {
            attributes: BTreeMap::new(),
            cells: BTreeMap::new(),
            of_machines: vec![BTreeSet::new(); machines],
        }
    }

    fn len(&self) -> usize {
        self.attributes.len() + self.cells.values().map(CellWays::len).sum::<usize>()
    }

    /// The same without the rungs of a level.
    fn without(&self, nearness: Nearness) -> Self {
        let mut state = self.clone();
        state.attributes.retain(|(level, _), _| *level != nearness);
        state.cells.remove(&nearness);
        for rungs in &mut state.of_machines {
            rungs.remove(&nearness);
        }
        state
    }

    fn levels(&self) -> BTreeSet<Nearness> {
        let cells = self.cells.iter().filter(|(_, ways)| ways.len() > 0);
        let attributes = self.attributes.keys().map(|(nearness, _)| *nearness);
        attributes.chain(cells.map(|(nearness, _)| *nearness)).collect()
    }

    /// All ways, the nearest first, and any devices at last.
    fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for nearness in self.levels() {
            let own = self.attributes.iter().filter(|((level, _), _)| *level == nearness);
            ways.extend(own.map(|(_, way)| way.clone()));
            let cells = self.cells.get(&nearness).cloned().unwrap_or_default();
            ways.extend(cells.into_ways().map(Way::Cell));
        }
        ways.push(Way::Any);
        ways
    }
}

fn all_near(question: Question<'_>, machine: &Machine<'_>) -> NearDevices {
    Nearness::levels(question.machines)
        .map(|level| {
            let kind = MachineCells::new(machine, full_cells(machine, level));
            (level, (kind, serving(machine, question, level, Apart::Kind)))
        })
        .collect()
}

/// The levels at which a machine has near devices, nearest first; levels with the same devices are
/// one. None if constraints cannot tell its GPUs from its NICs.
fn steps(question: Question<'_>, machine: &Machine<'_>, levels: &[Nearness]) -> Vec<Vec<Nearness>> {
    if !nics_are(machine, question) {
        return Vec::new();
    }
    let mut steps: Vec<(BTreeSet<Devices>, Vec<Nearness>)> = Vec::new();
    for nearness in levels {
        let cells = near(question, machine, *nearness);
        if cells.is_empty() {
            continue;
        }
        match steps.last_mut() {
            Some((known, same)) if cells.is_subset(known) => same.push(*nearness),
            _ => steps.push((cells, vec![*nearness])),
        }
    }
    steps.into_iter().map(|(_, levels)| levels).collect()
}

/// The cells of a machine that can serve a block.
fn near(question: Question<'_>, machine: &Machine<'_>, nearness: Nearness) -> BTreeSet<Devices> {
    if nearness == Nearness::Partner && question.demand.gpus > 1 {
        return BTreeSet::new();
    }
    let cells = nearness.cells(machine).into_iter();
    let serving = cells.filter(|cell| question.demand.capacity(cell) > 0);
    serving.map(|Cell { gpus, nics, .. }| (gpus, nics)).collect()
}

/// Plain counts, if every machine with enough devices is used as a whole. There is no
/// other choice of devices, so near devices are always included.
fn whole(question: Question<'_>, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, machines, .. } = question;
    let (gpus, nics) = (demand.all_gpus() as usize, demand.all_nics() as usize);
    let serves = enough(question);
    let counts = question.counts.filter(|_| {
        machines.iter().zip(&serves).all(|(machine, serves)| {
            let devices = &machine.devices;
            !serves || (devices.gpus.len() == gpus && devices.nics.len() == nics)
        })
    })?;
    Some(Candidate {
        join: "whole",
        why: "the pod takes every GPU and NIC of its node, so that no nearer ones are left"
            .to_owned(),
        nearness,
        levels: at(&serves, nearness),
        demand: counts.clone(),
        form: Form { ways: vec![Way::Any], only: None, apart: Apart::Kind },
        serves,
        far_because: super::FAR,
        rungs: None,
    })
}

/// Plain counts, first of the NICs near a GPU and then of any NICs, if the pod takes all
/// GPUs and the machine has spare NICs. No other choice would be near.
fn whole_or_any(question: Question<'_>, nearness: Nearness) -> Option<Candidate> {
    let Question { demand, machines, .. } = question;
    let all_have_kind = machines.iter().all(|machine| nics_are(machine, question));
    let counts = question.counts.filter(|_| demand.blocks > 1 && all_have_kind)?;
    let near: Vec<_> =
        machines.iter().map(|machine| wholes::near(machine, question, nearness)).collect();
    let (listed, serves) = wholes::ways(question, &near, WAYS_MAX - 1);
    let complete = !listed.is_empty()
        && machines.iter().zip(&serves).all(|(machine, serves)| {
            *serves || machine.live_nodes() == 0 || !demand.fits(&nearness.cells(machine))
        });
    complete.then(|| Candidate {
        join: "whole",
        why: "the pod takes every GPU of its node, and the NICs near them where they are free"
            .to_owned(),
        nearness,
        levels: at(&serves, nearness),
        demand: counts.clone(),
        form: Form {
            ways: listed.into_iter().chain([Way::Any]).collect(),
            only: None,
            apart: Apart::Kind,
        },
        serves: enough(question),
        far_because: super::FAR,
        rungs: None,
    })
}

/// The level on these machines.
fn at(serves: &[bool], nearness: Nearness) -> Vec<Option<Nearness>> {
    serves.iter().map(|serves| serves.then_some(nearness)).collect()
}

/// Plain counts of any devices, if no machine can serve near ones, or if a claim cannot express
/// which are near.
pub(crate) fn unaligned(question: Question<'_>, nearness: Nearness) -> Candidate {
    let demand = question.counts.unwrap_or(question.demand);
    let could =
        question.machines.iter().any(|machine| question.demand.fits(&nearness.cells(machine)));
    let (why, far_because) = if could {
        ("no claim can say which are near", "no claim can say which are near")
    } else {
        ("no machine in this cluster can give these", super::FAR)
    };
    let at = if could { String::new() } else { format!(" at {nearness}") };
    Candidate {
        join: UNALIGNED,
        why: format!("near devices are preferred, and {why}{at}; the pod gets any"),
        nearness,
        levels: vec![None; question.machines.len()],
        demand: demand.clone(),
        form: Form { ways: vec![Way::Any], only: None, apart: Apart::Kind },
        serves: enough(question),
        far_because,
        rungs: Some(Rungs::none(question.machines.len())),
    }
}

/// The machines with enough devices, wherever they are.
fn enough(question: Question<'_>) -> Vec<bool> {
    let (gpus, nics) = (question.demand.all_gpus() as usize, question.demand.all_nics() as usize);
    let machines = question.machines.iter().map(|machine| &machine.devices);
    machines.map(|devices| devices.gpus.len() >= gpus && devices.nics.len() >= nics).collect()
}
