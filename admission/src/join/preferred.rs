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
use super::form::{Across, Apart, Form, WAYS_MAX, Way};
use super::ways::{CellWays, MachineCells};
use super::{Candidate, UNALIGNED, full_cells, whole as wholes};
use crate::fleet::Fleet;
use crate::nearness::Nearness;
use crate::promise::{Levels, Nodes, Promise, Promises};
use cluster_model::machines::Machine;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{Cell, PciAddress};

/// Candidates for preferred alignment, best first.
#[derive(Debug)]
pub(crate) struct Preferred<'m> {
    /// With near devices on each present machine that has any.
    pub(crate) complete: Vec<Candidate<'m>>,
    /// With plain counts, if the pod takes whole machines.
    pub(crate) whole: Vec<Candidate<'m>>,
    /// With near devices on some machines.
    pub(crate) partial: Vec<Candidate<'m>>,
}

/// The GPUs and NICs of a cell.
type Devices = (Vec<PciAddress>, Vec<PciAddress>);

/// Candidates that start at the requested nearness, or at the best available one, and go
/// down to the farthest level that still counts as near.
pub(crate) fn propose<'m>(fleet: Fleet<'_, 'm>) -> Preferred<'m> {
    let levels = levels_from_asked(fleet);
    let (mut complete, mut partial) = (Vec::new(), Vec::new());
    let ladder = Ladder::build(fleet, &levels);
    for state in ladder.states.iter().rev() {
        for state in [Some(state.clone()), ladder.without_pairs(state)].into_iter().flatten() {
            let Some(candidate) = ladder.candidate(&state) else { continue };
            let of_kind = if ladder.is_complete(&state) { &mut complete } else { &mut partial };
            of_kind.push(candidate);
        }
    }
    Preferred { complete, whole: counts(fleet), partial }
}

/// The candidates that add rungs of the other machines to these rungs of the first ones, those with
/// most rungs first. The last one adds none.
pub(crate) fn extended<'m>(fleet: Fleet<'_, 'm>, rungs: &Rungs<'m>) -> Vec<Candidate<'m>> {
    let added = fleet.machines.iter();
    let added = added.filter(|machine| !rungs.of_machines.contains_key(machine.devices.node));
    let added: Vec<&Machine<'m>> = added.collect();
    let mut ladder = Ladder::empty(fleet, &added);
    let Some(rungs) = ladder.padded(rungs) else { return Vec::new() };
    let nothing_added = rungs.clone();
    let all_added = ladder.extend(rungs, &added, &levels_from_asked(fleet));
    ladder.states.push(all_added);
    let states = ladder.states.iter().rev().chain([&nothing_added]);
    states.filter_map(|state| ladder.candidate(state)).collect()
}

/// The candidates without a ladder: plain counts, if the pod takes whole machines.
pub(crate) fn counts<'m>(fleet: Fleet<'_, 'm>) -> Vec<Candidate<'m>> {
    let weakest = Nearness::weakest(fleet.machines);
    let mut levels = levels_from_asked(fleet).into_iter();
    let spare = levels.find_map(|nearness| whole_or_any(fleet, nearness));
    whole(fleet, weakest).into_iter().chain(spare).collect()
}

/// The levels from the requested one on, or from the weakest one if that is nearer.
fn levels_from_asked(fleet: Fleet<'_, '_>) -> Vec<Nearness> {
    let from = fleet.asked(Nearness::weakest(fleet.machines));
    let levels = Nearness::levels(fleet.machines);
    levels.filter(|level| from.is_none_or(|from| *level >= from)).collect()
}

/// The ladders of all machines, as far as a claim has room.
struct Ladder<'q, 'm> {
    fleet: Fleet<'q, 'm>,
    /// The near devices of each machine, by level.
    near: BTreeMap<&'m str, NearDevices>,
    /// The joins by attribute of each level, with their index among those of the driver, and the
    /// machines that they serve.
    attributes: BTreeMap<Nearness, Vec<(usize, Way, Nodes<'m>)>>,
    /// With each number of ways, the state in which most rungs were added.
    states: Vec<Rungs<'m>>,
}

/// The near devices of a machine, by level.
type NearDevices = BTreeMap<Nearness, (MachineCells, Vec<Cell>)>;

/// Rungs that were added.
#[derive(Clone, Debug)]
pub(crate) struct Rungs<'m> {
    attributes: BTreeMap<(Nearness, usize), Way>,
    cells: BTreeMap<Nearness, CellWays>,
    /// The levels of each machine.
    of_machines: BTreeMap<&'m str, BTreeSet<Nearness>>,
    /// How devices are divided among NUMA nodes where none has enough.
    across: Vec<Across>,
}

impl<'q, 'm> Ladder<'q, 'm> {
    fn build(fleet: Fleet<'q, 'm>, levels: &[Nearness]) -> Self {
        let (present, remembered): (Vec<_>, Vec<_>) =
            fleet.machines.iter().partition(|machine| machine.live_nodes() > 0);
        let all: Vec<_> = fleet.machines.iter().collect();
        let mut ladder = Self::empty(fleet, &all);
        let rungs = ladder.extend(Rungs::none(fleet.machines), &present, levels);
        let rungs = ladder.extend(rungs, &remembered, levels);
        ladder.states.push(rungs);
        ladder
    }

    /// A ladder to which these machines can be added.
    fn empty(fleet: Fleet<'q, 'm>, added: &[&Machine<'m>]) -> Self {
        let near = added.iter().map(|machine| (machine.devices.node, all_near(fleet, machine)));
        let attributes = Nearness::levels(fleet.machines).map(|nearness| {
            let all = Levels::all(fleet.machines, nearness);
            let known = attributes(fleet.driver()).into_iter().enumerate();
            let ways = known.filter_map(|(index, known)| {
                way(fleet, &all, known).map(|(way, served)| (index, way, served))
            });
            (nearness, ways.collect())
        });
        let (near, attributes) = (near.collect(), attributes.collect());
        Self { fleet, near, attributes, states: Vec::new() }
    }

    /// Adds the rungs of these machines, and keeps the states on the way.
    fn extend(
        &mut self,
        mut rungs: Rungs<'m>,
        added: &[&Machine<'m>],
        levels: &[Nearness],
    ) -> Rungs<'m> {
        let all = Nearness::levels(self.fleet.machines);
        let nearer: Vec<_> = all.filter(|level| !levels.contains(level)).collect();
        let steps = added.iter().map(|machine| steps(self.fleet, machine, levels));
        let steps: Vec<Vec<Vec<Nearness>>> = steps.collect();
        for (machine, own) in added.iter().zip(&steps) {
            // The weakest level holds all near devices. If there is no room for it, nearer devices
            // than asked for are better than any.
            let has_rung = own.iter().rev().any(|same| self.add(&mut rungs, machine, same));
            if !has_rung {
                let nearer = self::steps(self.fleet, machine, &nearer);
                nearer.iter().rev().any(|same| self.add(&mut rungs, machine, same));
            }
        }
        for (machine, own) in added.iter().zip(&steps) {
            for same in own {
                self.add(&mut rungs, machine, same);
            }
        }
        rungs
    }

    /// The rungs of the first machines among those of all, with the ways of this ladder. `None` if an
    /// attribute cannot serve one of them because of the others.
    fn padded(&self, rungs: &Rungs<'m>) -> Option<Rungs<'m>> {
        let mut rungs = rungs.clone();
        for machine in self.fleet.machines {
            rungs.of_machines.entry(machine.devices.node).or_default();
        }
        for ((nearness, index), way) in &mut rungs.attributes {
            let mut known = self.attributes.get(nearness)?.iter();
            *way = known.find(|(known, ..)| known == index)?.1.clone();
        }
        Some(rungs)
    }

    /// Adds a rung by the first of these levels, whose cells are the same, that there is room for.
    /// Keeps the state before it if the rung needs more ways.
    fn add(&mut self, state: &mut Rungs<'m>, machine: &Machine<'m>, same: &[Nearness]) -> bool {
        let node = machine.devices.node;
        let own = &state.of_machines[node];
        if same.iter().any(|nearness| own.contains(nearness)) {
            return true;
        }
        for nearness in same {
            let Some(mut next) = self.with(state, machine, *nearness) else { continue };
            next.of_machines.entry(node).or_default().insert(*nearness);
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
    fn with(
        &self,
        state: &Rungs<'m>,
        machine: &Machine<'m>,
        nearness: Nearness,
    ) -> Option<Rungs<'m>> {
        let mut state = state.clone();
        let node = machine.devices.node;
        let room = (WAYS_MAX - 1).saturating_sub(state.len());
        let mut known = self.attributes[&nearness].iter();
        if let Some((index, way, _)) = known.find(|(.., served)| served.contains(node)) {
            let is_known = state.attributes.insert((nearness, *index), way.clone());
            return (is_known.is_some() || room > 0).then_some(state);
        }
        let (kind, cells) = &self.near[node][&nearness];
        let ways = state.cells.entry(nearness).or_default();
        let room = room + ways.len();
        (!cells.is_empty() && ways.add(kind, cells, room)).then_some(state)
    }

    /// The state without the rung of pairs, if these are no nearer than other devices of the next
    /// rung. If the search takes too many steps with both, that rung serves more.
    fn without_pairs(&self, state: &Rungs<'m>) -> Option<Rungs<'m>> {
        let all = self.fleet.machines.iter();
        let paired = all.map(|machine| (machine, &state.of_machines[machine.devices.node]));
        let mut paired = paired.filter(|(_, rungs)| rungs.contains(&Nearness::Partner)).peekable();
        paired.peek()?;
        let are_spare =
            paired.all(|(machine, rungs)| rungs.len() > 1 && !machine.has_nearer_partners());
        are_spare.then(|| state.without(Nearness::Partner))
    }

    /// Returns true if each present machine with near devices has a rung.
    fn is_complete(&self, state: &Rungs<'m>) -> bool {
        self.fleet.machines.iter().filter(|machine| machine.live_nodes() > 0).all(|machine| {
            let node = machine.devices.node;
            !state.of_machines[node].is_empty()
                || self.near[node].values().all(|(_, cells)| cells.is_empty())
        })
    }

    fn candidate(&self, state: &Rungs<'m>) -> Option<Candidate<'m>> {
        let machines = self.fleet.machines;
        let promises = Promises::of_each(machines, |machine| match state.first_on(machine) {
            _ if !self.fleet.has_enough(machine) => Promise::Nothing,
            Some(level) => Promise::Near(level),
            None => Promise::Any,
        });
        let nearness = machines.iter().find_map(|machine| promises.on(machine).nearness())?;
        let tried: Vec<_> = state.levels().iter().map(ToString::to_string).collect();
        let why = format!(
            "near devices are preferred, not required: {}, then any, each tried in this order",
            tried.join(", then ")
        );
        let form = Form::new(state.ways(), Apart::Kind);
        let candidate = Candidate::new(self.fleet, ("tiers", why), form, promises);
        Some(Candidate { nearness, rungs: Some(state.clone()), ..candidate })
    }
}

impl<'m> Rungs<'m> {
    fn none(machines: &[Machine<'m>]) -> Self {
        let of_machines = machines.iter().map(|machine| (machine.devices.node, BTreeSet::new()));
        Self {
            attributes: BTreeMap::new(),
            cells: BTreeMap::new(),
            of_machines: of_machines.collect(),
            across: Vec::new(),
        }
    }

    /// The nearest level of a machine.
    pub(super) fn first_on(&self, machine: &Machine<'_>) -> Option<Nearness> {
        self.of_machines.get(machine.devices.node)?.first().copied()
    }

    /// The same with these ways to divide devices.
    pub(super) fn with_across(&self, across: Vec<Across>) -> Self {
        Self { across, ..self.clone() }
    }

    /// The number of ways besides any devices.
    fn len(&self) -> usize {
        let cells = self.cells.values().map(CellWays::len).sum::<usize>();
        self.attributes.len() + cells + self.across.len()
    }

    /// The same without the rungs of a level.
    fn without(&self, nearness: Nearness) -> Self {
        let mut state = self.clone();
        state.attributes.retain(|(level, _), _| *level != nearness);
        state.cells.remove(&nearness);
        for rungs in state.of_machines.values_mut() {
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
        ways.extend(self.across.iter().cloned().map(Way::Across));
        ways.push(Way::Any);
        ways
    }
}

fn all_near(fleet: Fleet<'_, '_>, machine: &Machine<'_>) -> NearDevices {
    Nearness::levels(fleet.machines)
        .map(|level| {
            let kind = MachineCells::new(machine, full_cells(machine, level));
            (level, (kind, serving(machine, fleet, level, Apart::Kind)))
        })
        .collect()
}

/// The levels at which a machine has near devices, nearest first; levels with the same devices are
/// one. None if constraints cannot tell its GPUs from its NICs.
fn steps(fleet: Fleet<'_, '_>, machine: &Machine<'_>, levels: &[Nearness]) -> Vec<Vec<Nearness>> {
    if !nics_are(machine, fleet) {
        return Vec::new();
    }
    let mut steps: Vec<(BTreeSet<Devices>, Vec<Nearness>)> = Vec::new();
    for nearness in levels {
        let cells = near(fleet, machine, *nearness);
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
fn near(fleet: Fleet<'_, '_>, machine: &Machine<'_>, nearness: Nearness) -> BTreeSet<Devices> {
    if nearness == Nearness::Partner && fleet.demand().gpus > 1 {
        return BTreeSet::new();
    }
    let cells = nearness.cells(machine).into_iter();
    let serving = cells.filter(|cell| fleet.demand().capacity(cell) > 0);
    serving.map(|Cell { gpus, nics, .. }| (gpus, nics)).collect()
}

/// Plain counts, if every machine with enough devices is used as a whole. There is no
/// other choice of devices, so near devices are always included.
fn whole<'m>(fleet: Fleet<'_, 'm>, nearness: Nearness) -> Option<Candidate<'m>> {
    let mut enough = fleet.machines.iter().filter(|machine| fleet.has_enough(machine));
    let takes_all = enough.all(|machine| fleet.demand().takes_all(machine));
    let counts = fleet.terms.counts.as_ref().filter(|_| takes_all)?;
    let why = "the pod takes every GPU and NIC of its node, so that no nearer ones are left";
    let promises = Promises::of_each(fleet.machines, |machine| {
        if fleet.has_enough(machine) { Promise::Near(nearness) } else { Promise::Nothing }
    });
    let form = Form::new(vec![Way::Any], Apart::Kind);
    let candidate = Candidate::new(fleet, ("whole", why.to_owned()), form, promises);
    Some(Candidate { demand: counts.clone(), ..candidate })
}

/// Plain counts, first of the NICs near a GPU and then of any NICs, if the pod takes all
/// GPUs and the machine has spare NICs. No other choice would be near.
fn whole_or_any<'m>(fleet: Fleet<'_, 'm>, nearness: Nearness) -> Option<Candidate<'m>> {
    let machines = fleet.machines;
    let all_have_kind = machines.iter().all(|machine| nics_are(machine, fleet));
    let is_in_blocks = fleet.demand().blocks > 1;
    let counts = fleet.terms.counts.as_ref().filter(|_| is_in_blocks && all_have_kind)?;
    let (mut ways, near) = wholes::ways(fleet, &Levels::all(machines, nearness), WAYS_MAX - 1);
    let is_complete = !ways.is_empty()
        && machines.iter().all(|machine| {
            near.contains(machine.devices.node)
                || machine.live_nodes() == 0
                || !fleet.demand().fits(&nearness.cells(machine))
        });
    if !is_complete {
        return None;
    }
    let why = "the pod takes every GPU of its node, and the NICs near them where they are free";
    let promises = Promises::of_each(machines, |machine| match fleet.has_enough(machine) {
        true if near.contains(machine.devices.node) => Promise::Near(nearness),
        true => Promise::Any,
        false => Promise::Nothing,
    });
    ways.push(Way::Any);
    let form = Form::new(ways, Apart::Kind);
    let candidate = Candidate::new(fleet, ("whole", why.to_owned()), form, promises);
    Some(Candidate { demand: counts.clone(), nearness, ..candidate })
}

/// Plain counts of any devices, if no machine can serve near ones, or if a claim cannot express
/// which are near.
pub(crate) fn unaligned<'m>(fleet: Fleet<'_, 'm>, nearness: Nearness) -> Candidate<'m> {
    let could = fleet.any_fits(nearness);
    let (why, far_because) = if could {
        ("no claim can say which are near", "no claim can say which are near")
    } else {
        ("no machine in this cluster can give these", super::FAR)
    };
    let at = if could { String::new() } else { format!(" at {nearness}") };
    let why = format!("near devices are preferred, and {why}{at}; the pod gets any");
    let promises = Promises::of_each(fleet.machines, |machine| {
        if fleet.has_enough(machine) { Promise::Any } else { Promise::Nothing }
    });
    let form = Form::new(vec![Way::Any], Apart::Kind);
    let candidate = Candidate::new(fleet, (UNALIGNED, why), form, promises);
    Candidate {
        nearness,
        demand: fleet.terms.counts.as_ref().unwrap_or_else(|| fleet.demand()).clone(),
        far_because,
        rungs: Some(Rungs::none(fleet.machines)),
        ..candidate
    }
}
