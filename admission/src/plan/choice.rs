//! Chooses among all candidates: the one that most nodes can serve, each at the nearest level that
//! it can guarantee itself, in the cheapest form.
//!
//! The level of a machine is what it could serve if it were the only one, so no machine gets less
//! because of another. Only a machine that a claim has no room for is left out, or served at a
//! farther level.

mod extended;

use crate::claim::{CLAIM_PARTS_MAX, ClaimParts, match_attribute};
use crate::cost::{self, CostError, Empty, Trial};
use crate::denial::Denial;
use crate::gpu_sharing::SharedGpus;
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::form::{Apart, Order, Source, WAYS_MAX};
use crate::join::{self, Candidate, Classes, Preferred, Question};
use crate::nearness::Nearness;
use crate::plan::Policy;
use crate::ports::PortsApart;
use crate::supply::{self, Unfit};
use cluster_model::gpu_drivers;
use cluster_model::machines::Machine;
use cluster_model::names::{alternative, attribute};
use cluster_model::view::ClusterView;
use dra_allocator::Device;
use k8s_openapi::api::resource::v1::{DeviceClaim, ResourceClaimSpec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use topology_graph::ShapeHash;

/// Attributes that are equal on NICs of one fabric.
pub(crate) const FABRIC_ATTRIBUTES: &[&str] = &[attribute::AZURE_PLACEMENT_GROUP];

/// The choice.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// The best candidate.
    pub(super) best: Chosen,
    /// If it is pinned to cells: all equally good candidates. Which one a pod gets is chosen later.
    pub(super) pins: Vec<Chosen>,
    /// The first nodes of the machines on which no claim fits that their graph allows.
    pub(super) unfit: BTreeSet<String>,
}

/// A candidate, written and measured.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) candidate: Candidate,
    pub(super) claim: ResourceClaimSpec,
    pub(super) nic_requests: Vec<String>,
    pub(super) steps: u64,
    /// Why the pod can get several functions of one port, if it can.
    pub(super) shares_ports: Option<&'static str>,
    order: Order,
    beside: Beside,
}

impl Chosen {
    /// What a machine gets, for comparison: those that are served come first, then the nearest.
    fn level_on(&self, machine: usize) -> (bool, Option<Nearness>) {
        (!self.candidate.serves[machine], self.candidate.levels[machine])
    }
}

/// What a claim says about all its NICs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Beside {
    /// The attributes on which they are equal, as they are on one fabric.
    fabric: Vec<&'static str>,
    /// How the functions of a port are kept apart.
    ports: PortsApart,
}

/// The nearest levels that a machine can serve.
#[derive(Clone, Copy, Debug)]
struct Alone {
    /// With requests as the pod asks.
    own: Option<Nearness>,
    /// With plain counts, as the pod takes the whole machine.
    whole: Option<Nearness>,
}

/// Why no candidate was chosen.
#[derive(Debug, Default)]
struct Refusals {
    over_budget: bool,
    too_many_parts: bool,
    other: Option<CostError>,
    /// The first claim that fits on none of the machines that it is for.
    unfit: Option<Unfit>,
    /// Whether some claim that is for a machine fits there, by the machine's first node.
    fits: BTreeMap<String, bool>,
}

impl Refusals {
    /// Records on which of the machines that it is for a claim fits.
    fn record(&mut self, candidate: &Candidate, machines: &[Machine<'_>], trial: &Trial) {
        let for_it = machines.iter().zip(&trial.empty).zip(&candidate.serves);
        for ((machine, empty), _) in for_it.filter(|(_, serves)| **serves) {
            let known = self.fits.entry(machine.devices.node.to_owned()).or_default();
            *known |= *empty > Empty::Nothing;
        }
    }

    /// The first nodes of the machines on which no claim fits.
    fn unfit(self) -> BTreeSet<String> {
        self.fits.into_iter().filter(|(_, fits)| !fits).map(|(node, _)| node).collect()
    }
}

pub(super) fn choose(
    intent: &Intent,
    question: Question<'_>,
    classes: &Classes,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Choice, Denial> {
    let mut refusals = Refusals::default();
    let chooser = Chooser { intent, question, classes, view, policy };
    let best = match intent.policy {
        AlignmentPolicy::Required => chooser.required(&mut refusals),
        AlignmentPolicy::Preferred => chooser.preferred(&mut refusals),
    };
    if let Some(best) = best {
        return Ok(Choice { best, pins: Vec::new(), unfit: refusals.unfit() });
    }
    // For preferred alignment, if a claim could require near devices, a pinned claim would be
    // worse.
    let is_preferred = intent.policy == AlignmentPolicy::Preferred;
    let is_needed = !is_preferred || chooser.required(&mut Refusals::default()).is_none();
    let pins = if is_needed { chooser.pinned(&mut refusals) } else { Vec::new() };
    if let Some(best) = pins.first().cloned() {
        return Ok(Choice { best, pins, unfit: refusals.unfit() });
    }
    if is_preferred && let Some(best) = chooser.unaligned(&mut refusals) {
        return Ok(Choice { best, pins, unfit: refusals.unfit() });
    }
    Err(match refusals {
        Refusals { over_budget: true, .. } => {
            supply::too_costly(intent, question, policy.max_steps)
        }
        Refusals { too_many_parts: true, .. } => supply::too_many_parts(intent, question),
        Refusals { other: Some(error), .. } => intent.deny(error.to_string()),
        Refusals { unfit: Some(unfit), .. } => supply::unfit(intent, view, &unfit),
        Refusals { .. } => supply::shortage(intent, question),
    })
}

#[derive(Clone, Copy)]
pub(super) struct Chooser<'a> {
    pub(super) intent: &'a Intent,
    pub(super) question: Question<'a>,
    pub(super) classes: &'a Classes,
    pub(super) view: &'a ClusterView,
    pub(super) policy: &'a Policy,
}

/// The level of each machine.
type Levels = Vec<Option<Nearness>>;

/// The most machines for which another level is tried because a claim has no room for theirs.
const LOWERED_MAX: usize = 8;

impl Chooser<'_> {
    /// The claim in which each machine has the nearest level that it can serve.
    fn required(&self, refusals: &mut Refusals) -> Option<Chosen> {
        let machines = self.question.machines;
        if let [machine] = machines {
            return levels(self.intent, self.question, machine).into_iter().find_map(|level| {
                let mut candidates = join::required(self.question, &[Some(level)], WAYS_MAX);
                candidates.extend(join::whole(self.question, &[Some(level)]));
                self.with_together(&mut candidates);
                self.best(candidates, refusals)
            });
        }
        let alone: Vec<Alone> = (0..machines.len()).map(|it| self.alone(it, refusals)).collect();
        let own = self.one_of_a_shape(alone.iter().map(|it| it.own).collect());
        let whole = self.one_of_a_shape(alone.iter().map(|it| it.whole).collect());
        let whole = self.best(join::whole(self.question, &whole), refusals);
        let own = self.together_at(&own, refusals).map(|found| self.lowered(found, own, refusals));
        match (own, whole) {
            (Some(own), Some(whole)) => Some(self.better(own, whole)),
            (own, whole) => own.or(whole),
        }
    }

    /// The nearest levels that a machine could serve if it were the only one.
    fn alone(&self, index: usize, refusals: &mut Refusals) -> Alone {
        let machines = slice::from_ref(&self.question.machines[index]);
        let alone = Self { question: Question { machines, ..self.question }, ..*self };
        let levels = levels(alone.intent, alone.question, &machines[0]);
        Alone {
            own: levels.iter().copied().find(|level| {
                let mut candidates = join::required(alone.question, &[Some(*level)], WAYS_MAX);
                alone.with_together(&mut candidates);
                alone.has_one(&candidates, refusals)
            }),
            whole: levels.iter().copied().find(|level| {
                alone.has_one(&join::whole(alone.question, &[Some(*level)]), refusals)
            }),
        }
    }

    /// Whether one of these candidates becomes a claim.
    fn has_one(&self, candidates: &[Candidate], refusals: &mut Refusals) -> bool {
        candidates.iter().any(|it| self.cheapest(it, refusals).is_some())
    }

    /// Gives machines of one shape one level, that of the machine with most nodes: a claim cannot
    /// distinguish them.
    fn one_of_a_shape(&self, mut levels: Levels) -> Levels {
        let mut known: BTreeMap<ShapeHash, Nearness> = BTreeMap::new();
        for (machine, level) in self.question.machines.iter().zip(&mut levels) {
            let of_shape = machine.shapes.iter().find_map(|shape| known.get(shape)).copied();
            if let (Some(of_shape), true) = (of_shape, level.is_some()) {
                let fits = self.question.demand.fits(&of_shape.cells(machine));
                *level = fits.then_some(of_shape);
            }
            if let Some(level) = level {
                known.extend(machine.shapes.iter().map(|shape| (*shape, *level)));
            }
        }
        levels
    }

    /// The best claim with these levels. If a claim has no room for all machines, or would take too
    /// long, leaves out those with the fewest nodes.
    fn together_at(&self, levels: &Levels, refusals: &mut Refusals) -> Option<Chosen> {
        let machines = self.question.machines;
        let mut best: Option<Chosen> = None;
        for room in (1..=WAYS_MAX).rev() {
            let mut candidates = join::required(self.question, levels, room);
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
    fn lowered(&self, found: Chosen, mut levels: Levels, refusals: &mut Refusals) -> Chosen {
        let machines = self.question.machines;
        let left_out = |found: &Chosen, levels: &Levels| -> Vec<usize> {
            let left_out = (0..machines.len())
                .filter(|it| !found.candidate.serves[*it] && levels[*it].is_some());
            left_out.take(LOWERED_MAX).collect()
        };
        let mut best = found;
        for index in left_out(&best, &levels) {
            let farther = self::levels(self.intent, self.question, &machines[index]).into_iter();
            for level in farther.filter(|level| Some(*level) > levels[index]) {
                let mut tried = levels.clone();
                tried[index] = Some(level);
                let Some(other) = self.together_at(&tried, refusals) else { continue };
                let keeps = best.candidate.serves.iter().zip(&other.candidate.serves);
                if other.candidate.serves[index] && keeps.clone().all(|(had, has)| *has || !had) {
                    (best, levels) = (other, tried);
                    break;
                }
            }
        }
        best
    }

    /// The claim that gives more nodes nearer devices, otherwise the one with fewer steps.
    fn better(&self, own: Chosen, whole: Chosen) -> Chosen {
        let rank = |one: &Chosen, other: &Chosen| (Reverse(self.nearer(one, other)), one.steps);
        if rank(&whole, &own) < rank(&own, &whole) { whole } else { own }
    }

    /// How many nodes, present and all, one claim gives nearer devices than another one.
    fn nearer(&self, one: &Chosen, other: &Chosen) -> (usize, usize) {
        let machines = self.question.machines.iter().enumerate();
        machines
            .filter(|(index, _)| one.level_on(*index) < other.level_on(*index))
            .map(|(_, machine)| machine.weight())
            .fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    /// Adds the candidates with merged blocks.
    fn with_together(&self, candidates: &mut Vec<Candidate>) {
        let together: Vec<_> = candidates.iter().filter_map(|it| self.together(it)).collect();
        candidates.extend(together);
    }

    /// The candidate with merged blocks, if near means in the same cell.
    fn together(&self, candidate: &Candidate) -> Option<Candidate> {
        if candidate.form.apart != Apart::Kind {
            return None;
        }
        let machines = self.question.machines.iter().zip(&candidate.levels);
        let levels = machines.filter_map(|(machine, level)| Some((machine, (*level)?)));
        let cells: Option<Vec<_>> = levels
            .map(|(machine, level)| (level != Nearness::Partner).then(|| level.cells(machine)))
            .collect();
        let demand = candidate.demand.together(&self.intent.shares, &cells?)?;
        Some(Candidate { demand, ..candidate.clone() })
    }

    /// The first candidate that is cheap enough; those with the best ladders come first. Merged
    /// blocks come last, since they allow only the weakest level.
    fn preferred(&self, refusals: &mut Refusals) -> Option<Chosen> {
        let Question { machines, demand, .. } = self.question;
        let weakest = Nearness::weakest(machines);
        if machines.iter().all(|machine| !demand.fits(&weakest.cells(machine))) {
            return self.unaligned(refusals);
        }
        let asked = self.intent.level.map(Nearness::Level);
        let Preferred { complete, whole, partial } = join::preferred(self.question, asked);
        let weakest_only = complete.iter().chain(&whole).filter(|it| self.is_weakest(it));
        let together: Vec<_> = weakest_only.filter_map(|it| self.together(it)).collect();
        let candidates = complete.into_iter().chain(whole).chain(together).chain(partial);
        let mut candidates = candidates.into_iter();
        candidates.find_map(|candidate| self.best(vec![candidate], refusals))
    }

    /// Returns true if the candidate tries only the weakest level of each machine.
    fn is_weakest(&self, candidate: &Candidate) -> bool {
        let mut levels = self.question.machines.iter().zip(&candidate.levels);
        levels.all(|(machine, level)| {
            level.is_none_or(|level| level >= Nearness::weakest(slice::from_ref(machine)))
        })
    }

    /// Any devices.
    fn unaligned(&self, refusals: &mut Refusals) -> Option<Chosen> {
        let weakest = Nearness::weakest(self.question.machines);
        self.best(vec![join::unaligned(self.question, weakest)], refusals)
    }

    /// Claims for named cells of the nearest level of each machine type, and for preferred
    /// alignment also one for any devices.
    fn pinned(&self, refusals: &mut Refusals) -> Vec<Chosen> {
        let is_required = self.intent.policy == AlignmentPolicy::Required;
        let mut found = Vec::new();
        for (of, machine) in join::machine_types(self.question) {
            let strand = join::pairs_strand(self.question, machine);
            let own = slice::from_ref(machine);
            let weakest = Nearness::weakest(own);
            let asked = self.intent.level.map(|level| Nearness::Level(level).min(weakest));
            let levels = Nearness::levels(own).filter(|level| match asked {
                Some(asked) if is_required => *level == asked,
                Some(asked) => *level >= asked,
                None => !(strand && *level == Nearness::Partner),
            });
            let mut best: ((usize, usize), Vec<Chosen>) = ((0, 0), Vec::new());
            for level in levels {
                let candidates = join::pinned(self.question, &of, level).into_iter();
                let pins: Vec<_> =
                    candidates.filter_map(|it| self.cheapest(&it, refusals)).collect();
                let nodes = pins.iter().map(|it| it.candidate.nodes(self.question.machines));
                let nodes = nodes.max().unwrap_or_default();
                if nodes > best.0 {
                    best = (nodes, pins);
                }
            }
            found.extend(best.1);
        }
        if !is_required && let Some(first) = found.first() {
            let any = join::unaligned(self.question, first.candidate.nearness);
            found.extend(self.cheapest(&any, refusals));
        }
        found
    }

    /// The candidate with most nodes, then one that needs no list of shapes, then fewest steps, then
    /// the first one.
    fn best(&self, candidates: Vec<Candidate>, refusals: &mut Refusals) -> Option<Chosen> {
        let machines = self.question.machines;
        let mut measured = Vec::new();
        for candidate in candidates.into_iter().filter(|one| one.nodes(machines) > (0, 0)) {
            measured.extend(self.cheapest(&candidate, refusals));
        }
        // Among equal ones, `min_by_key` returns the first.
        measured.into_iter().min_by_key(|chosen: &Chosen| {
            let candidate = &chosen.candidate;
            let lists = candidate.needs_shapes() && candidate.join != "whole";
            (Reverse(candidate.nodes(machines)), lists, chosen.steps)
        })
    }

    /// The candidate in the order of requests that takes the fewest steps.
    fn cheapest(&self, candidate: &Candidate, refusals: &mut Refusals) -> Option<Chosen> {
        let mut best: Option<Chosen> = None;
        for order in Order::all(&candidate.demand, &candidate.form) {
            let found = self.in_order(candidate, order, refusals);
            let is_less =
                |found: &Chosen| best.as_ref().is_none_or(|best| found.steps < best.steps);
            if found.as_ref().is_some_and(is_less) {
                best = found;
            }
        }
        best
    }

    /// The candidate with its requests in this order.
    fn in_order(
        &self,
        candidate: &Candidate,
        order: Order,
        refusals: &mut Refusals,
    ) -> Option<Chosen> {
        let written = self.write(candidate, order);
        if written.requests.len() > CLAIM_PARTS_MAX || written.constraints.len() > CLAIM_PARTS_MAX {
            refusals.too_many_parts = true;
            return None;
        }
        if self.intent.wishes.could_repeat(&written, self.view.settings()) {
            let why = "before Kubernetes 1.37 it could give one NIC twice";
            refusals.other = Some(CostError::Refused(why.to_owned()));
            return None;
        }
        let trial = match self.trial(candidate, &written) {
            Ok(trial) => trial,
            Err(CostError::OverBudget(_)) => {
                refusals.over_budget = true;
                return None;
            }
            Err(error) => {
                refusals.other = Some(error);
                return None;
            }
        };
        let machines = self.question.machines;
        refusals.record(candidate, machines, &trial);
        let fitting = candidate.clone().only_where(&trial);
        if !fitting.serves.contains(&true) {
            let unfit = Unfit::new(machines, &candidate.serves, claim(&written));
            refusals.unfit = refusals.unfit.take().or(unfit);
            return None;
        }
        if candidate.is_near() && !fitting.is_near() {
            return None;
        }
        let beside = self.beside(candidate);
        let driver = self.question.nic_class.driver();
        Some(Chosen {
            candidate: fitting,
            claim: claim(&written),
            steps: trial.steps,
            shares_ports: beside.ports.why_not(driver, &written, self.view.settings()),
            nic_requests: written.nic_requests,
            order,
            beside,
        })
    }

    fn write(&self, candidate: &Candidate, order: Order) -> ClaimParts {
        let source = Source {
            driver: self.question.driver,
            gpu_profile: self.intent.gpu_profile(),
            classes: self.classes,
            nic_class: self.question.nic_class,
            without_interface: self.intent.host_network,
            rails: self.question.rails,
            capacity: self.question.capacity,
            gpu_capacity: self.question.shared_gpus.and_then(SharedGpus::capacity),
            gpu_addresses: &gpu_addresses(self.question),
            last_resort: if self.intent.are_pairs_grouped() {
                alternative::ANY_PAIRS
            } else {
                alternative::ANY
            },
        };
        let mut written = candidate.form.write(&candidate.demand, source, order);
        if let Some(shared) = self.question.shared_gpus {
            shared.keep_apart(&candidate.demand, &mut written);
        }
        let beside = self.beside(candidate);
        for attribute in beside.fabric {
            let nics = written.nic_requests.clone();
            written.constraints.push(match_attribute(nics, attribute));
        }
        self.intent.wishes.add_to(&candidate.demand, &mut written);
        beside.ports.constrain(&mut written);
        self.question.nic_class.keep_equal(&mut written, candidate.demand.all_nics());
        written
    }

    fn beside(&self, candidate: &Candidate) -> Beside {
        Beside {
            fabric: FABRIC_ATTRIBUTES
                .iter()
                .filter(|attribute| self.on_every_nic(candidate, attribute))
                .copied()
                .collect(),
            ports: PortsApart::new(
                self.question.nic_class.driver(),
                &candidate.demand,
                self.question.machines,
                &candidate.serves,
                self.view.settings(),
            ),
        }
    }

    /// Returns true if every NIC that could serve has the attribute. Otherwise a constraint on it
    /// must not be added, since a device without the attribute can never satisfy it.
    fn on_every_nic(&self, candidate: &Candidate, attribute: &str) -> bool {
        let machines = self.question.machines.iter().zip(&candidate.serves);
        machines.filter(|(_, serves)| **serves).all(|(machine, _)| machine.nics_have(attribute))
    }

    fn trial(&self, candidate: &Candidate, written: &ClaimParts) -> Result<Trial, CostError> {
        cost::trial(
            self.view,
            self.question.machines,
            &candidate.demand,
            (&candidate.levels, candidate.nearness),
            &claim(written),
            self.policy.max_steps,
        )
    }
}

/// The levels that a machine can have, best first. Pairs that only leave devices unused are the last
/// resort.
pub(super) fn levels(
    intent: &Intent,
    question: Question<'_>,
    machine: &Machine<'_>,
) -> Vec<Nearness> {
    let own = slice::from_ref(machine);
    let weakest = Nearness::weakest(own);
    let asked = intent.level.map(|level| Nearness::Level(level).min(weakest));
    let strand = join::pairs_strand(question, machine);
    // A pair has one GPU; a larger block has no partners.
    let has_pairs = question.demand.gpus == 1;
    let levels = Nearness::levels(own).filter(|level| {
        asked.is_none_or(|asked| asked == *level) && (has_pairs || *level != Nearness::Partner)
    });
    let (last, mut levels): (Vec<_>, Vec<_>) =
        levels.partition(|level| strand && *level == Nearness::Partner);
    levels.extend(last);
    levels
}

/// The attributes by which claims select GPUs by address: the standard one, and those of the driver, also
/// of its whole GPUs, if some GPU has only that.
fn gpu_addresses(question: Question<'_>) -> Vec<&'static str> {
    let gpus = question.machines.iter().flat_map(|it| it.devices.gpus.values().copied());
    let lacking: Vec<&Device> =
        gpus.filter(|gpu| gpu.attribute(attribute::PCI_BUS_ID).is_none()).collect();
    let whole = gpu_drivers::by_name(question.driver.driver);
    let own = [Some(question.driver), whole].into_iter().flatten();
    let own = own.filter_map(|driver| driver.address_attribute);
    let own = own.filter(|name| lacking.iter().any(|gpu| gpu.attribute(name).is_some()));
    let mut names: Vec<&'static str> = std::iter::once(attribute::PCI_BUS_ID).chain(own).collect();
    names.dedup();
    names
}

pub(super) fn claim(written: &ClaimParts) -> ResourceClaimSpec {
    let ClaimParts { requests, constraints, .. } = written;
    ResourceClaimSpec {
        devices: Some(DeviceClaim {
            requests: Some(requests.clone()),
            constraints: (!constraints.is_empty()).then(|| constraints.clone()),
            config: None,
        }),
    }
}

#[cfg(test)]
mod tests;
