//! Adds machines that are only remembered to a claim that was chosen for the present ones.
//!
//! A claim takes them in only if it still says the same about each present machine, in the same
//! order ([`Form::seen_on`](crate::join::form::Form)). So what a present machine gives a pod never
//! depends on remembered ones.

use super::among::Among;
use super::choice::{Choice, Chooser, Chosen, Refusals};
use super::found::{Found, Servable};
use super::gpus::Alone;
use super::{Plan, Policy, complete};
use crate::cost;
use crate::intent::AlignmentPolicy;
use crate::join::form::{Order, WAYS_MAX, Way};
use crate::join::seen::Seen;
use crate::join::{self, Candidate};
use crate::promise::{Levels, Promise};
use cluster_model::machines::Machine;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::slice;

/// The most remembered machines that are tried one by one, if a claim cannot take in all.
const TRIED_MAX: usize = 8;

/// A plan for the present machines, as far as remembered ones can be added.
pub(super) struct Extendable<'m> {
    pub(super) found: Found<'m>,
    /// The present machines that can serve the pod.
    pub(super) servable: Servable<'m>,
    pub(super) choice: Choice<'m>,
}

impl<'m> Extendable<'m> {
    /// The plan with remembered machines, as far as present ones lose nothing.
    pub(super) fn with_remembered(self, plan: Plan, among: &Among<'m>, policy: &Policy) -> Plan {
        let Among { view, trials, .. } = *among;
        let Some(all) = self.all_servable(view) else { return plan };
        let present = self.servable.machines.len();
        let chooser = Chooser { fleet: all.fleet(), view, policy, trials };
        let extension = Extension { chooser, present };
        let Choice { best, pins, unfit } = self.choice;
        let choice = if pins.is_empty() {
            Choice { best: extension.extended(&best), pins, unfit }
        } else {
            let pins = pins.iter().map(|pin| extension.padded(pin)).collect();
            Choice { best: extension.padded(&best), pins, unfit }
        };
        complete::plan(all.fleet(), choice, view.settings())
    }

    /// The present machines with all remembered ones, or with those that each agree with them.
    fn all_servable(&self, view: &ClusterView) -> Option<Servable<'m>> {
        let remembered = &self.found.remembered;
        self.with(remembered, view).or_else(|| {
            let mut agreeing = remembered.clone();
            agreeing.retain(|one| self.with(slice::from_ref(one), view).is_some());
            self.with(&agreeing, view)
        })
    }

    /// The present machines with these; `None` if the claim would say something else.
    fn with(&self, added: &[Machine<'m>], view: &ClusterView) -> Option<Servable<'m>> {
        let machines = self.found.machines.iter().chain(added).cloned().collect();
        let all = self.found.servable(machines, view).ok()?;
        all.agrees_with(&self.servable).then_some(all)
    }
}

/// How a claim that was chosen for the first machines of a fleet is extended to the others.
struct Extension<'q, 'm> {
    chooser: Chooser<'q, 'm>,
    /// The number of machines that it was chosen for.
    present: usize,
}

impl<'q, 'm> Extension<'q, 'm> {
    fn present(&self) -> &'q [Machine<'m>] {
        &self.chooser.fleet.machines[..self.present]
    }

    fn remembered(&self) -> &'q [Machine<'m>] {
        &self.chooser.fleet.machines[self.present..]
    }

    /// The claim with remembered machines, or the same one for more machines.
    fn extended(&self, base: &Chosen<'m>) -> Chosen<'m> {
        let found = match self.chooser.fleet.intent.policy {
            AlignmentPolicy::Required => self.extended_required(base),
            AlignmentPolicy::Preferred => self.extended_preferred(base),
        };
        found.unwrap_or_else(|| self.padded(base))
    }

    /// The same claim, with what it does on the remembered machines: any devices, or nothing.
    fn padded(&self, base: &Chosen<'m>) -> Chosen<'m> {
        let mut chosen = base.clone();
        let Candidate { demand, form, promises, .. } = &mut chosen.candidate;
        let takes_any = form.only.is_none() && form.ways().any(|way| *way == Way::Any);
        for machine in self.remembered() {
            let is_any = takes_any && demand.has_enough(machine) && self.fits(machine, &base.claim);
            promises.set(machine, Promise::best(None, is_any));
        }
        chosen
    }

    /// Whether a claim that was tried on other machines fits on this one too.
    fn fits(&self, machine: &Machine<'_>, claim: &ResourceClaimSpec) -> bool {
        let Chooser { view, policy, .. } = self.chooser;
        cost::fits(view, machine, claim, policy.max_steps).is_ok_and(|fits| fits)
    }

    fn extended_required(&self, base: &Chosen<'m>) -> Option<Chosen<'m>> {
        let kept = self.kept_levels(base);
        let is_whole = base.candidate.join == "whole";
        let mut wanted = kept.clone();
        for machine in self.remembered() {
            let Alone { own, whole } = self.chooser.alone(machine, &mut Refusals::default());
            wanted.set(machine, if is_whole { whole } else { own });
        }
        let mut of_shapes = self.chooser.one_of_a_shape(wanted);
        for machine in self.present() {
            of_shapes.set(machine, kept.on(machine));
        }
        if let Some(found) = self.at_levels(base, &of_shapes) {
            return Some(found);
        }
        // Without room for all: first none, so that the claim selects nothing on machines where it
        // would be wrong, then one after the other.
        let mut levels = kept;
        let mut best = self.at_levels(base, &levels)?;
        let wanted = self.remembered().iter().filter(|it| of_shapes.on(it).is_some());
        for machine in wanted.take(TRIED_MAX) {
            levels.set(machine, of_shapes.on(machine));
            match self.at_levels(base, &levels) {
                Some(found) => best = found,
                None => levels.set(machine, None),
            }
        }
        Some(best)
    }

    /// The levels that a claim gives the present machines.
    fn kept_levels(&self, base: &Chosen<'m>) -> Levels<'m> {
        let mut levels = Levels::default();
        for machine in self.present() {
            levels.set(machine, base.candidate.promises.on(machine).nearness());
        }
        levels
    }

    /// The best claim that serves each machine with a level, and keeps what the present ones have.
    fn at_levels(&self, base: &Chosen<'m>, levels: &Levels<'m>) -> Option<Chosen<'m>> {
        let fleet = self.chooser.fleet;
        let mut candidates = join::required(fleet, levels, WAYS_MAX);
        candidates.extend(join::whole(fleet, levels));
        self.chooser.with_together(&mut candidates);
        candidates.retain(|candidate| {
            self.remembered()
                .iter()
                .all(|machine| levels.on(machine).is_none() || candidate.promises.serve(machine))
        });
        let found = candidates.iter().filter_map(|candidate| self.kept(base, candidate));
        found.min_by_key(|chosen| {
            (chosen.order != base.order, chosen.candidate.lists_shapes(), chosen.steps)
        })
    }

    fn extended_preferred(&self, base: &Chosen<'m>) -> Option<Chosen<'m>> {
        let fleet = self.chooser.fleet;
        let mut candidates = match &base.candidate.rungs {
            Some(rungs) => join::extended(fleet, rungs),
            None => Vec::new(),
        };
        candidates.extend(join::counts(fleet));
        let weakest_only = candidates.iter().filter(|it| self.chooser.is_weakest(it));
        let together: Vec<_> = weakest_only.filter_map(|it| self.chooser.together(it)).collect();
        candidates.extend(together);
        candidates.iter().find_map(|candidate| self.kept(base, candidate))
    }

    /// The candidate as a claim, if it keeps what the present machines have.
    fn kept(&self, base: &Chosen<'m>, candidate: &Candidate<'m>) -> Option<Chosen<'m>> {
        let known = &base.candidate;
        let is_kept = known.form.apart == candidate.form.apart
            && known.demand.all_gpus() == candidate.demand.all_gpus()
            && known.demand.all_nics() == candidate.demand.all_nics()
            && self.present().iter().all(|machine| self.keeps_machine(known, candidate, machine))
            && self.keeps_beside(base, candidate);
        if !is_kept {
            return None;
        }
        let mut refusals = Refusals::default();
        let gpu_source = self.chooser.fleet.terms.gpu_source;
        if Order::all(&candidate.demand, &candidate.form, gpu_source).contains(&base.order) {
            return self.chooser.in_order(candidate, base.order, &mut refusals);
        }
        self.chooser.cheapest(candidate, &mut refusals)
    }

    /// Returns true if the candidate says the same about a present machine.
    fn keeps_machine(
        &self,
        base: &Candidate<'_>,
        other: &Candidate<'_>,
        machine: &Machine<'_>,
    ) -> bool {
        let seen = base.form.seen_on(machine);
        base.promises.on(machine) == other.promises.on(machine)
            && seen == other.form.seen_on(machine)
            && (base.demand == other.demand || seen == [Seen::Any])
            && (other.form.ways().count() == 1 || self.has_kind(machine))
    }

    /// Returns true if constraints between alternatives can name the GPUs of the machine.
    fn has_kind(&self, machine: &Machine<'_>) -> bool {
        self.chooser.fleet.driver().kind_attribute.is_none_or(|kind| {
            machine.devices.gpus.values().all(|gpu| gpu.attribute(kind).is_some())
        })
    }

    /// Returns true if the candidate says the same about all NICs of each present machine. It need not
    /// name an attribute that has one value on each of them.
    fn keeps_beside(&self, base: &Chosen<'_>, candidate: &Candidate<'m>) -> bool {
        let (had, has) = (&base.beside, self.chooser.beside(candidate));
        let mut missing = had.fabric.iter().filter(|attribute| !has.fabric.contains(attribute));
        had.ports == has.ports
            && has.fabric.iter().all(|attribute| had.fabric.contains(attribute))
            && missing.all(|attribute| {
                self.present().iter().all(|machine| {
                    !base.candidate.promises.serve(machine) || has_one_value(machine, attribute)
                })
            })
    }
}

/// Returns true if the attribute is the same on all NICs of the machine.
fn has_one_value(machine: &Machine<'_>, attribute: &str) -> bool {
    let mut values = machine.devices.nics.values().map(|nic| nic.attribute(attribute));
    let first = values.next();
    values.all(|value| Some(value) == first)
}
