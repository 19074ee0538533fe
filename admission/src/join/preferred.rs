//! Preferred alignment: a claim tries near devices first, then any that fit.
//!
//! The near devices of each machine are its own ladder of levels. Rungs are added one by one: first
//! one rung for each present machine, those with most nodes first, then their other rungs, then the
//! rungs of remembered machines. A claim without room for all leaves out the last ones, so no
//! machine takes a rung from one with more nodes, and every machine has any devices as its last
//! resort.

use super::attributes::{attributes, nics_are, way};
use super::cells::serving;
use super::form::{Apart, Form, WAYS_MAX, Way};
use super::ways::{CellWays, Kind};
use super::{Candidate, Question, UNALIGNED, full_cells, whole as wholes};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use std::collections::{BTreeMap, BTreeSet};
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
    let weakest = Nearness::weakest(question.machines);
    let from = |nearness: &Nearness| asked.is_none_or(|asked| *nearness >= asked.min(weakest));
    let levels: Vec<_> = Nearness::levels(question.machines).filter(from).collect();
    let (mut complete, mut partial) = (Vec::new(), Vec::new());
    let ladder = Ladder::build(question, &levels);
    for state in ladder.states.iter().rev() {
        for state in [Some(state.clone()), ladder.without_pairs(state)].into_iter().flatten() {
            let Some(candidate) = ladder.candidate(&state) else { continue };
            let of_kind = if ladder.is_complete(&state) { &mut complete } else { &mut partial };
            of_kind.push(candidate);
        }
    }
    let spare = levels.into_iter().find_map(|nearness| whole_or_any(question, nearness));
    let whole = whole(question, weakest).into_iter().chain(spare).collect();
    Preferred { complete, whole, partial }
}

/// The ladders of all machines, as far as a claim has room.
struct Ladder<'a> {
    question: Question<'a>,
    /// The near devices of each machine, by level.
    near: Vec<NearDevices>,
    /// The joins by attribute of each level, and which machines they serve.
    attributes: BTreeMap<Nearness, Vec<(Way, Vec<bool>)>>,
    /// With each number of ways, the state in which most rungs were added.
    states: Vec<State>,
}

/// The near devices of a machine, by level.
type NearDevices = BTreeMap<Nearness, (Kind, Vec<Cell>)>;

/// Rungs that were added.
#[derive(Clone)]
struct State {
    attributes: BTreeMap<(Nearness, usize), Way>,
    cells: BTreeMap<Nearness, CellWays>,
    /// The levels of each machine.
    rungs: Vec<BTreeSet<Nearness>>,
}

impl<'a> Ladder<'a> {
    fn build(question: Question<'a>, levels: &[Nearness]) -> Self {
        let machines = question.machines;
        let nearer: Vec<_> =
            Nearness::levels(machines).filter(|level| !levels.contains(level)).collect();
        let steps_at = |levels: &[Nearness]| -> Vec<_> {
            machines.iter().map(|it| steps(question, it, levels)).collect()
        };
        let (steps, nearer) = (steps_at(levels), steps_at(&nearer));
        let ways_at = |nearness: Nearness| {
            let all = vec![Some(nearness); machines.len()];
            let known = attributes(question.driver).into_iter();
            (nearness, known.filter_map(|known| way(question, &all, known)).collect())
        };
        let mut ladder = Self {
            question,
            near: machines.iter().map(|machine| all_near(question, machine)).collect(),
            attributes: Nearness::levels(machines).map(ways_at).collect(),
            states: Vec::new(),
        };
        let mut state = State {
            attributes: BTreeMap::new(),
            cells: BTreeMap::new(),
            rungs: vec![BTreeSet::new(); machines.len()],
        };
        let (present, remembered): (Vec<usize>, Vec<usize>) =
            (0..machines.len()).partition(|index| machines[*index].live_nodes() > 0);
        for machines in [present, remembered] {
            for machine in &machines {
                // The weakest level holds all near devices. If there is no room for it, nearer devices
                // than asked for are better than any.
                let mut weakest_first =
                    steps[*machine].iter().rev().chain(nearer[*machine].iter().rev());
                weakest_first.any(|same| ladder.add(&mut state, *machine, same));
            }
            for machine in &machines {
                for same in &steps[*machine] {
                    ladder.add(&mut state, *machine, same);
                }
            }
        }
        ladder.states.push(state);
        ladder
    }

    /// Adds a rung by the first of these levels, whose cells are the same, that there is room for.
    /// Keeps the state before it if the rung needs more ways.
    fn add(&mut self, state: &mut State, machine: usize, same: &[Nearness]) -> bool {
        if same.iter().any(|nearness| state.rungs[machine].contains(nearness)) {
            return true;
        }
        for nearness in same {
            let Some(mut next) = self.with(state, machine, *nearness) else { continue };
            next.rungs[machine].insert(*nearness);
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
    fn with(&self, state: &State, machine: usize, nearness: Nearness) -> Option<State> {
        let mut state = state.clone();
        let room = (WAYS_MAX - 1).saturating_sub(state.len());
        let known = &self.attributes[&nearness];
        if let Some(index) = known.iter().position(|(_, serves)| serves[machine]) {
            let is_known = state.attributes.insert((nearness, index), known[index].0.clone());
            return (is_known.is_some() || room > 0).then_some(state);
        }
        let (kind, cells) = &self.near[machine][&nearness];
        let ways = state.cells.entry(nearness).or_default();
        let room = room + ways.len();
        (!cells.is_empty() && ways.add(kind, cells, room)).then_some(state)
    }

    /// The state without the rung of pairs, if these are no nearer than other devices of the next
    /// rung. If the search takes too many steps with both, that rung serves more.
    fn without_pairs(&self, state: &State) -> Option<State> {
        let paired = self.question.machines.iter().zip(&state.rungs);
        let mut paired = paired.filter(|(_, rungs)| rungs.contains(&Nearness::Partner)).peekable();
        paired.peek()?;
        let are_spare =
            paired.all(|(machine, rungs)| rungs.len() > 1 && !machine.has_nearer_partners());
        are_spare.then(|| state.without(Nearness::Partner))
    }

    /// Returns true if each present machine with near devices has a rung.
    fn is_complete(&self, state: &State) -> bool {
        let machines = self.question.machines.iter().zip(&self.near).zip(&state.rungs);
        machines.into_iter().all(|((machine, near), rungs)| {
            !rungs.is_empty()
                || machine.live_nodes() == 0
                || near.values().all(|(_, cells)| cells.is_empty())
        })
    }

    fn candidate(&self, state: &State) -> Option<Candidate> {
        let levels: Vec<_> = state.rungs.iter().map(|rungs| rungs.first().copied()).collect();
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
        })
    }
}

impl State {
    fn len(&self) -> usize {
        self.attributes.len() + self.cells.values().map(CellWays::len).sum::<usize>()
    }

    /// The same without the rungs of a level.
    fn without(&self, nearness: Nearness) -> Self {
        let mut state = self.clone();
        state.attributes.retain(|(level, _), _| *level != nearness);
        state.cells.remove(&nearness);
        for rungs in &mut state.rungs {
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
    let at = |level: Nearness| {
        let kind = Kind::new(machine, full_cells(machine, level));
        (level, (kind, serving(machine, question, level, Apart::Kind)))
    };
    Nearness::levels(question.machines).map(at).collect()
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
        levels: at(&serves, nearness),
        demand: counts.clone(),
        form: Form { ways: vec![Way::Any], only: None, apart: Apart::Kind },
        serves,
        far_because: super::FAR,
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
    let is_said = |(machine, serves): (&Machine<'_>, &bool)| {
        *serves || machine.live_nodes() == 0 || !demand.fits(&nearness.cells(machine))
    };
    let complete = !listed.is_empty() && machines.iter().zip(&serves).all(is_said);
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
    }
}

/// The machines with enough devices, wherever they are.
fn enough(question: Question<'_>) -> Vec<bool> {
    let (gpus, nics) = (question.demand.all_gpus() as usize, question.demand.all_nics() as usize);
    let machines = question.machines.iter().map(|machine| &machine.devices);
    machines.map(|devices| devices.gpus.len() >= gpus && devices.nics.len() >= nics).collect()
}
