//! Claims for GPUs and NICs.
//!
//! The level of a machine is what it could serve if it were the only one, so no machine gets less
//! because of another. Only a machine that a claim has no room for is left out, or served at a
//! farther level.

use super::among::Among;
use super::choice::{Chooser, Chosen, Refusals};
use super::found::Found;
use super::{Policy, nic_checks, selection};
use crate::denial::Denial;
use crate::fleet::GpuSource;
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::form::{Apart, WAYS_MAX};
use crate::join::{self, Candidate, Preferred};
use crate::nearness::Nearness;
use crate::promise::Levels;
use crate::supply;
use crate::wishes::NicShare;
use cluster_model::machines::{Machine, NicSelection, Selection, machines};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::slice;
use topology_graph::ShapeHash;

/// The most machines for which another level is tried because a claim has no room for theirs.
const LOWERED_MAX: usize = 8;

/// The machines with the devices that the pod asks for.
pub(super) fn find<'m>(
    intent: &Intent,
    among: &Among<'m>,
    policy: &Policy,
) -> Result<Found<'m>, Denial> {
    intent.check_claim_size()?;
    let selected = selection::select(intent, among, policy)?;
    nic_checks::check_driver(intent, selected.nic_driver)?;
    let view = among.view;
    let selection = selection::devices(intent, &selected, view);
    let found = machines(view, &selection, |node| among.allows(node));
    if found.is_empty() {
        let nics = NicSelection { only_shared: false, ..selection.nics };
        let whole = Selection { nics, ..selection };
        if selection.nics.only_shared && !machines(view, &whole, |it| among.allows(it)).is_empty() {
            return Err(NicShare::deny_all());
        }
        return Err(supply::nothing(intent, among, &selection));
    }
    let (machines, remembered) = among.split(found);
    if machines.is_empty() {
        // Denied for the remembered ones too, or planned for them alone.
        return Err(intent.deny("no present node can serve the pod"));
    }
    let (intent, gpu_source) = (intent.clone(), GpuSource::Claim);
    Ok(Found { intent, selected, gpu_source, machines, remembered })
}

/// The nearest levels that a machine can serve if it is the only one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// With requests as the pod asks.
    pub(super) own: Option<Nearness>,
    /// With plain counts, as the pod takes the whole machine.
    pub(super) whole: Option<Nearness>,
}

impl<'q, 'm> Chooser<'q, 'm> {
    /// The best claim for GPUs and NICs, and all equally good ones if it is pinned to cells.
    pub(super) fn with_gpus(
        &self,
        refusals: &mut Refusals<'m>,
    ) -> (Option<Chosen<'m>>, Vec<Chosen<'m>>) {
        let is_preferred = self.fleet.intent.policy == AlignmentPolicy::Preferred;
        let best = if is_preferred {
            self.preferred(refusals).map(|best| self.least_far(best))
        } else {
            self.required(refusals)
        };
        if best.is_some() {
            return (best, Vec::new());
        }
        // For preferred alignment, if a claim could require near devices, a pinned claim would be
        // worse.
        let is_needed = !is_preferred || self.required(&mut Refusals::default()).is_none();
        let pins = if is_needed { self.pinned(refusals) } else { Vec::new() };
        let best = match pins.first() {
            None if is_preferred => self.unaligned(refusals).map(|best| self.least_far(best)),
            first => first.cloned(),
        };
        (best, pins)
    }

    /// The claim in which each machine has the nearest level that it can serve.
    fn required(&self, refusals: &mut Refusals<'m>) -> Option<Chosen<'m>> {
        let fleet = self.fleet;
        if let [machine] = fleet.machines {
            return fleet.levels(machine).into_iter().find_map(|level| {
                let level = Levels::all(fleet.machines, level);
                let mut candidates = join::required(fleet, &level, WAYS_MAX);
                candidates.extend(join::whole(fleet, &level));
                self.with_together(&mut candidates);
                self.best(candidates, refusals)
            });
        }
        let (mut own, mut whole) = (Levels::default(), Levels::default());
        for machine in fleet.machines {
            let alone = self.alone(machine, refusals);
            own.set(machine, alone.own);
            whole.set(machine, alone.whole);
        }
        let (own, whole) = (self.one_of_a_shape(own), self.one_of_a_shape(whole));
        let whole = self.best(join::whole(fleet, &whole), refusals);
        let own = self.together_at(&own, refusals).map(|found| self.lowered(found, own, refusals));
        match (own, whole) {
            (Some(own), Some(whole)) => Some(self.better(own, whole)),
            (own, whole) => own.or(whole),
        }
    }

    /// The nearest levels that a machine could serve if it were the only one.
    pub(super) fn alone(&self, machine: &'q Machine<'m>, refusals: &mut Refusals<'m>) -> Alone {
        let alone = Self { fleet: self.fleet.alone(machine), ..*self };
        let levels = alone.fleet.levels(machine);
        let own = levels.iter().find(|level| {
            let levels = Levels::all(alone.fleet.machines, **level);
            let mut candidates = join::required(alone.fleet, &levels, WAYS_MAX);
            alone.with_together(&mut candidates);
            alone.has_one(&candidates, refusals)
        });
        let whole = levels.iter().find(|level| {
            let levels = Levels::all(alone.fleet.machines, **level);
            alone.has_one(&join::whole(alone.fleet, &levels), refusals)
        });
        Alone { own: own.copied(), whole: whole.copied() }
    }

    /// Whether one of these candidates becomes a claim.
    fn has_one(&self, candidates: &[Candidate<'m>], refusals: &mut Refusals<'m>) -> bool {
        candidates.iter().any(|it| self.cheapest(it, refusals).is_some())
    }

    /// Gives machines of one shape one level, that of the machine with most nodes: a claim cannot
    /// distinguish them.
    pub(super) fn one_of_a_shape(&self, mut levels: Levels<'m>) -> Levels<'m> {
        let mut known: BTreeMap<ShapeHash, Nearness> = BTreeMap::new();
        for machine in self.fleet.machines {
            let Some(own) = levels.on(machine) else { continue };
            let of_shape = machine.shapes.iter().find_map(|shape| known.get(shape)).copied();
            let level = of_shape.unwrap_or(own);
            let fits = of_shape.is_none() || self.fleet.demand().fits(&level.cells(machine));
            levels.set(machine, fits.then_some(level));
            if fits {
                known.extend(machine.shapes.iter().map(|shape| (*shape, level)));
            }
        }
        levels
    }

    /// The best claim with these levels. If a claim has no room for all machines, or would take too
    /// long, leaves out those with the fewest nodes.
    fn together_at(&self, levels: &Levels<'m>, refusals: &mut Refusals<'m>) -> Option<Chosen<'m>> {
        let machines = self.fleet.machines;
        let mut best: Option<Chosen<'m>> = None;
        for room in (1..=WAYS_MAX).rev() {
            let mut candidates = join::required(self.fleet, levels, room);
            self.with_together(&mut candidates);
            let Some(most) = candidates.iter().map(|it| it.nodes(machines)).max() else { break };
            let has = best.as_ref().map(|best| best.candidate.nodes(machines));
            if has.is_some_and(|has| has >= most) {
                break;
            }
            let found = self.best(candidates, refusals);
            best = found
                .filter(|found| has.is_none_or(|has| found.candidate.nodes(machines) > has))
                .or(best);
        }
        best
    }

    /// Tries farther levels for machines that the claim leaves out although they could serve it. No
    /// other machine loses anything.
    fn lowered(
        &self,
        mut best: Chosen<'m>,
        mut levels: Levels<'m>,
        refusals: &mut Refusals<'m>,
    ) -> Chosen<'m> {
        let machines = self.fleet.machines;
        let left_out = machines.iter().filter(|machine| !best.candidate.promises.serve(machine));
        let left_out = left_out.filter_map(|machine| Some((machine, levels.on(machine)?)));
        let left_out: Vec<(&Machine<'m>, Nearness)> = left_out.take(LOWERED_MAX).collect();
        for (machine, nearest) in left_out {
            let farther = self.fleet.levels(machine).into_iter().filter(|level| *level > nearest);
            for level in farther {
                let mut tried = levels.clone();
                tried.set(machine, Some(level));
                let Some(other) = self.together_at(&tried, refusals) else { continue };
                let (has, had) = (&other.candidate.promises, &best.candidate.promises);
                let mut kept = machines.iter().filter(|machine| had.serve(machine));
                if has.serve(machine) && kept.all(|machine| has.serve(machine)) {
                    (best, levels) = (other, tried);
                    break;
                }
            }
        }
        best
    }

    /// The claim that gives more nodes nearer devices, otherwise the one with fewer steps.
    fn better(&self, own: Chosen<'m>, whole: Chosen<'m>) -> Chosen<'m> {
        let of_whole = (Reverse(self.nearer(&whole, &own)), whole.steps);
        let of_own = (Reverse(self.nearer(&own, &whole)), own.steps);
        if of_whole < of_own { whole } else { own }
    }

    /// How many nodes, present and all, one claim gives nearer devices than another one.
    fn nearer(&self, one: &Chosen<'_>, other: &Chosen<'_>) -> (usize, usize) {
        let (one, other) = (&one.candidate.promises, &other.candidate.promises);
        let machines = self.fleet.machines.iter();
        machines
            .filter(|machine| one.on(machine).rank() < other.on(machine).rank())
            .map(Machine::weight)
            .fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    /// Adds the candidates with merged blocks.
    pub(super) fn with_together(&self, candidates: &mut Vec<Candidate<'m>>) {
        let together: Vec<_> = candidates.iter().filter_map(|it| self.together(it)).collect();
        candidates.extend(together);
    }

    /// The candidate with merged blocks, if near means in the same cell.
    pub(super) fn together(&self, candidate: &Candidate<'m>) -> Option<Candidate<'m>> {
        if candidate.form.apart != Apart::Kind {
            return None;
        }
        let near = self
            .fleet
            .machines
            .iter()
            .filter_map(|machine| Some((machine, candidate.promises.on(machine).nearness()?)));
        let cells: Option<Vec<_>> = near
            .map(|(machine, level)| (level != Nearness::Partner).then(|| level.cells(machine)))
            .collect();
        let demand = candidate.demand.together(&self.fleet.intent.shares, &cells?)?;
        Some(Candidate { demand, ..candidate.clone() })
    }

    /// The first candidate that is cheap enough; those with the best ladders come first. Merged
    /// blocks come last, since they allow only the weakest level.
    fn preferred(&self, refusals: &mut Refusals<'m>) -> Option<Chosen<'m>> {
        let fleet = self.fleet;
        let weakest = Nearness::weakest(fleet.machines);
        if !fleet.any_fits(weakest) {
            return self.unaligned(refusals);
        }
        let Preferred { complete, whole, partial } = join::preferred(fleet);
        let weakest_only = complete.iter().chain(&whole).filter(|it| self.is_weakest(it));
        let together: Vec<_> = weakest_only.filter_map(|it| self.together(it)).collect();
        let candidates = complete.into_iter().chain(whole).chain(together).chain(partial);
        let mut candidates = candidates.into_iter();
        candidates.find_map(|candidate| self.best(vec![candidate], refusals))
    }

    /// Returns true if the candidate tries only the weakest level of each machine.
    pub(super) fn is_weakest(&self, candidate: &Candidate<'_>) -> bool {
        self.fleet.machines.iter().all(|machine| {
            let level = candidate.promises.on(machine).nearness();
            level.is_none_or(|level| level >= Nearness::weakest(slice::from_ref(machine)))
        })
    }

    /// Any devices.
    fn unaligned(&self, refusals: &mut Refusals<'m>) -> Option<Chosen<'m>> {
        let weakest = Nearness::weakest(self.fleet.machines);
        self.best(vec![join::unaligned(self.fleet, weakest)], refusals)
    }

    /// Claims for named cells of the nearest level of each machine type, and for preferred
    /// alignment also one for any devices.
    fn pinned(&self, refusals: &mut Refusals<'m>) -> Vec<Chosen<'m>> {
        let fleet = self.fleet;
        let is_required = fleet.intent.policy == AlignmentPolicy::Required;
        let mut found = Vec::new();
        for (of, machine) in join::machine_types(fleet) {
            let strand = fleet.pairs_strand(machine);
            let own = slice::from_ref(machine);
            let asked = fleet.asked(Nearness::weakest(own));
            let levels = Nearness::levels(own).filter(|level| match asked {
                Some(asked) if is_required => *level == asked,
                Some(asked) => *level >= asked,
                None => !(strand && *level == Nearness::Partner),
            });
            let mut best: ((usize, usize), Vec<Chosen<'m>>) = ((0, 0), Vec::new());
            for level in levels {
                let candidates = join::pinned(fleet, &of, level).into_iter();
                let pins: Vec<_> =
                    candidates.filter_map(|it| self.cheapest(&it, refusals)).collect();
                let nodes = pins.iter().map(|it| it.candidate.nodes(fleet.machines));
                let nodes = nodes.max().unwrap_or_default();
                if nodes > best.0 {
                    best = (nodes, pins);
                }
            }
            found.extend(best.1);
        }
        if !is_required && let Some(first) = found.first() {
            let any = join::unaligned(fleet, first.candidate.nearness);
            found.extend(self.cheapest(&any, refusals));
        }
        found
    }
}
