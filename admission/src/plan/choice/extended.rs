//! Adds machines that are only remembered to a claim that was chosen for the present ones.
//!
//! A claim takes them in only if it still says the same about each present machine, in the same
//! order ([`Form::seen_on`](crate::join::form::Form)). So what a present machine gives a pod never
//! depends on remembered ones.

use super::{Chooser, Chosen, Levels, Refusals};
use crate::cost;
use crate::intent::AlignmentPolicy;
use crate::join::form::{Order, WAYS_MAX, Way};
use crate::join::seen::Seen;
use crate::join::{self, Candidate};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;

/// The most remembered machines that are tried one by one, if a claim cannot take in all.
const TRIED_MAX: usize = 8;

impl Chooser<'_> {
    /// The claim with remembered machines, or the same one for more machines. The first machines of
    /// the question are those that it was chosen for.
    pub(in crate::plan) fn extended(&self, base: &Chosen) -> Chosen {
        let found = match self.intent.policy {
            AlignmentPolicy::Required => self.extended_required(base),
            AlignmentPolicy::Preferred => self.extended_preferred(base),
        };
        found.unwrap_or_else(|| self.padded(base))
    }

    /// The same claim, with what it does on the remembered machines: any devices, or nothing.
    pub(in crate::plan) fn padded(&self, base: &Chosen) -> Chosen {
        let mut chosen = base.clone();
        let Candidate { demand, form, serves, levels, .. } = &mut chosen.candidate;
        let takes_any = form.only.is_none() && form.ways.contains(&Way::Any);
        let (gpus, nics) = (demand.all_gpus() as usize, demand.all_nics() as usize);
        for machine in &self.question.machines[serves.len()..] {
            let devices = &machine.devices;
            let has_enough = devices.gpus.len() >= gpus && devices.nics.len() >= nics;
            serves.push(takes_any && has_enough && self.fits(machine, &base.claim));
            levels.push(None);
        }
        chosen
    }

    /// Whether a claim that was tried on other machines fits on this one too.
    fn fits(&self, machine: &Machine<'_>, claim: &ResourceClaimSpec) -> bool {
        let fits = cost::fits(self.view, machine, claim, self.policy.max_steps);
        fits.is_ok_and(|fits| fits)
    }

    fn extended_required(&self, base: &Chosen) -> Option<Chosen> {
        let present = base.candidate.levels.len();
        let all = self.question.machines.len();
        let is_whole = base.candidate.join == "whole";
        let mut wanted = base.candidate.levels.clone();
        for index in present..all {
            let alone = self.alone(index, &mut Refusals::default());
            wanted.push(if is_whole { alone.whole } else { alone.own });
        }
        let mut of_shapes = self.one_of_a_shape(wanted);
        of_shapes[..present].copy_from_slice(&base.candidate.levels);
        if let Some(found) = self.at_levels(base, &of_shapes) {
            return Some(found);
        }
        // Without room for all: first none, so that the claim selects nothing on machines where it
        // would be wrong, then one after the other.
        let mut levels: Levels = base.candidate.levels.clone();
        levels.resize(all, None);
        let mut best = self.at_levels(base, &levels)?;
        let wanted = (present..all).filter(|index| of_shapes[*index].is_some());
        for index in wanted.take(TRIED_MAX) {
            levels[index] = of_shapes[index];
            match self.at_levels(base, &levels) {
                Some(found) => best = found,
                None => levels[index] = None,
            }
        }
        Some(best)
    }

    /// The best claim that serves each machine with a level, and keeps what the present ones have.
    fn at_levels(&self, base: &Chosen, levels: &[Option<Nearness>]) -> Option<Chosen> {
        let mut candidates = join::required(self.question, levels, WAYS_MAX);
        candidates.extend(join::whole(self.question, levels));
        self.with_together(&mut candidates);
        candidates.retain(|candidate| {
            let mut remembered =
                candidate.serves.iter().zip(levels).skip(base.candidate.serves.len());
            remembered.all(|(serves, level)| *serves || level.is_none())
        });
        let found = candidates.iter().filter_map(|candidate| self.kept(base, candidate));
        found.min_by_key(|chosen| {
            let lists = chosen.candidate.needs_shapes() && chosen.candidate.join != "whole";
            (chosen.order != base.order, lists, chosen.steps)
        })
    }

    fn extended_preferred(&self, base: &Chosen) -> Option<Chosen> {
        let asked = self.intent.level.map(Nearness::Level);
        let mut candidates = match &base.candidate.rungs {
            Some(rungs) => join::extended(self.question, asked, rungs),
            None => Vec::new(),
        };
        candidates.extend(join::counts(self.question, asked));
        let weakest_only = candidates.iter().filter(|candidate| self.is_weakest(candidate));
        let together: Vec<_> = weakest_only.filter_map(|it| self.together(it)).collect();
        candidates.extend(together);
        candidates.iter().find_map(|candidate| self.kept(base, candidate))
    }

    /// The candidate as a claim, if it keeps what the present machines have.
    fn kept(&self, base: &Chosen, candidate: &Candidate) -> Option<Chosen> {
        let known = &base.candidate;
        let is_kept = known.form.apart == candidate.form.apart
            && known.demand.all_gpus() == candidate.demand.all_gpus()
            && known.demand.all_nics() == candidate.demand.all_nics()
            && (0..known.serves.len()).all(|index| self.keeps_machine(known, candidate, index))
            && self.keeps_beside(base, candidate);
        if !is_kept {
            return None;
        }
        let mut refusals = Refusals::default();
        if Order::all(&candidate.demand, &candidate.form).contains(&base.order) {
            return self.in_order(candidate, base.order, &mut refusals);
        }
        self.cheapest(candidate, &mut refusals)
    }

    /// Returns true if the candidate says the same about a present machine.
    fn keeps_machine(&self, base: &Candidate, other: &Candidate, index: usize) -> bool {
        let machine = &self.question.machines[index];
        let seen = base.form.seen_on(machine);
        base.serves[index] == other.serves[index]
            && base.levels[index] == other.levels[index]
            && seen == other.form.seen_on(machine)
            && (base.demand == other.demand || seen == [Seen::Any])
            && (other.form.ways.len() == 1 || self.has_kind(machine))
    }

    /// Returns true if constraints between alternatives can name the GPUs of the machine.
    fn has_kind(&self, machine: &Machine<'_>) -> bool {
        self.question.driver.kind_attribute.is_none_or(|kind| {
            machine.devices.gpus.values().all(|gpu| gpu.attribute(kind).is_some())
        })
    }

    /// Returns true if the candidate says the same about all NICs of each present machine. It need not
    /// name an attribute that has one value on each of them.
    fn keeps_beside(&self, base: &Chosen, candidate: &Candidate) -> bool {
        let (had, has) = (&base.beside, self.beside(candidate));
        let mut missing = had.fabric.iter().filter(|attribute| !has.fabric.contains(attribute));
        had.ports == has.ports
            && has.fabric.iter().all(|attribute| had.fabric.contains(attribute))
            && missing.all(|attribute| {
                let mut served = self.question.machines.iter().zip(&base.candidate.serves);
                served.all(|(machine, serves)| !serves || has_one_value(machine, attribute))
            })
    }
}

/// Returns true if the attribute is the same on all NICs of the machine.
fn has_one_value(machine: &Machine<'_>, attribute: &str) -> bool {
    let mut values = machine.devices.nics.values().map(|nic| nic.attribute(attribute));
    let first = values.next();
    values.all(|value| Some(value) == first)
}
