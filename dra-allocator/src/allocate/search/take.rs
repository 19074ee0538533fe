//! Takes a device for a request, and undoes that.
//!
//! Follows `allocateDevice` in `allocator_*.go` and the function that it returns.

use super::super::constraint::ValueNumber;
use super::super::counters::Counters;
use super::super::error::AllocateError;
use super::super::problem::Problem;
use super::halt::Halt;
use super::solution::Chosen;
use super::state::Search;

/// The changes made for a device, so that they can be undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    ask: usize,
    candidate: usize,
    must: bool,
    groups: usize,
    counters: bool,
    constraints: usize,
    /// Whether the device was in use before; `None` if it was not marked.
    marked: Option<bool>,
    chosen: bool,
}

/// The reason why a device is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Constraint,
    Other,
}

impl Search<'_, '_> {
    /// Takes a device for a request if possible. With `must`, a constraint that forbids the device
    /// is an error.
    pub(super) fn take(
        &mut self,
        ask: usize,
        candidate: usize,
        must: bool,
    ) -> Result<Option<Undo>, Halt> {
        // A required device has not been judged yet.
        if must && (self.is_taken(ask, candidate) || self.is_unfit(ask, candidate)) {
            return Ok(None);
        }
        let groups = self.groups.mark();
        let (counters, constraints, marked, chosen) = Default::default();
        let mut undo = Undo { ask, candidate, must, groups, counters, constraints, marked, chosen };
        let refused = match self.take_parts(&mut undo) {
            Ok(None) => return Ok(Some(undo)),
            refused => refused,
        };
        self.undo(undo);
        match refused? {
            Some(Refusal::Constraint) if must => Err(self.constraint_error(undo).into()),
            _ => Ok(None),
        }
    }

    /// Returns true if the device cannot be taken because it is in use.
    fn is_taken(&self, ask: usize, candidate: usize) -> bool {
        let ask = &self.problem.asks[ask];
        if ask.ask.is_admin() {
            return self.is_given(ask.claim, candidate);
        }
        self.busy.contains(candidate)
    }

    /// Returns true if the claim got the device as a whole.
    pub(super) fn is_given(&self, claim: usize, candidate: usize) -> bool {
        let asks = &self.problem.asks;
        let mut given = self.chosen.iter().filter(|chosen| !chosen.is_share);
        given.any(|chosen| chosen.candidate == candidate && asks[chosen.ask].claim == claim)
    }

    fn is_unfit(&self, ask: usize, candidate: usize) -> bool {
        let device = self.device(candidate);
        let tainted = !self.draws_before_taints(device)
            && self.is_tainted_for(device, &self.problem.asks[ask]);
        tainted || !self.can_be_operated(candidate)
    }

    /// Takes the device step by step and records each step in `undo`. Returns the reason if a step
    /// is refused.
    fn take_parts(&mut self, undo: &mut Undo) -> Result<Option<Refusal>, Halt> {
        let problem = self.problem;
        let ask = &problem.asks[undo.ask];
        let device = self.device(undo.candidate);
        let shareable = self.is_shareable(device);
        // The capacity of devices that are not shared was judged before.
        if shareable && !undo.must && !self.has_capacity(undo.ask, undo.candidate)? {
            return Ok(Some(Refusal::Other));
        }
        if !device.consumes_counters().is_empty() && !self.take_counters(undo, shareable) {
            return Ok(Some(Refusal::Other));
        }
        if self.draws_before_taints(device) && self.is_tainted_for(device, ask) {
            return Ok(Some(Refusal::Other));
        }
        for constraint in &ask.constraints {
            if !self.satisfies(undo, *constraint)? {
                return Ok(Some(Refusal::Constraint));
            }
            undo.constraints += 1;
        }
        // For a required device, constraints come before capacity, because a violated constraint is
        // an error.
        if undo.must && !self.has_capacity(undo.ask, undo.candidate)? {
            return Ok(Some(Refusal::Other));
        }
        if !shareable {
            undo.marked = Some(self.busy.contains(undo.candidate));
            self.busy.set(undo.candidate, true);
        }
        if shareable {
            self.shares.take(ask.equivalent, undo.candidate);
        }
        let (candidate, ask) = (undo.candidate, undo.ask);
        self.chosen.push(Chosen { candidate, ask, is_share: shareable });
        undo.chosen = true;
        Ok(None)
    }

    /// Takes groups, then counters. Further shares of a device consume no counters.
    fn take_counters(&mut self, undo: &mut Undo, shareable: bool) -> bool {
        let Problem { settings, in_use, pools, candidates, .. } = self.problem;
        if !settings.gates.partitionable_devices {
            return false;
        }
        let candidate = &candidates[undo.candidate];
        if shareable && self.is_shared(undo.candidate) {
            return true;
        }
        let (device, number) = (candidate.device, candidate.pool);
        let (pool, in_use) = (&pools[number], in_use[number]);
        if settings.gates.compatibility_groups
            && !self.groups.add((number, pool), device, in_use, settings)
        {
            return false;
        }
        if self.counters.is_empty() {
            self.counters = Counters::new(candidates.len());
        }
        undo.counters = self.counters.take(undo.candidate, device, pool, in_use, settings);
        undo.counters
    }

    /// Returns true if a share of the device is in use or being allocated (`deviceCapacityInUse`).
    fn is_shared(&self, candidate: usize) -> bool {
        let Problem { settings, in_use, candidates, .. } = self.problem;
        let in_use = in_use[candidates[candidate].pool];
        let name = &candidates[candidate].device.id.device;
        in_use.capacity_in_use(name).is_some()
            || (!settings.quirks.shared_id_not_in_use && in_use.is_shared(name))
            || self.shares.is_taking(candidate)
    }

    /// Adds the device to a constraint of the claim. Returns false if the constraint forbids it.
    fn satisfies(&mut self, undo: &Undo, constraint: usize) -> Result<bool, Halt> {
        let problem = self.problem;
        let ask = &problem.asks[undo.ask];
        let claim = &problem.claims[ask.claim];
        let number = claim.first_constraint + constraint;
        let name = problem.constraints[number].1;
        let state = &mut self.constraints[number];
        let mut derived = ask.ask.derived_attributes.iter();
        if let Some((_, selector)) = derived.rfind(|(known, _)| known == name) {
            let value = self.derived.value(problem, undo.candidate, name, selector)?;
            let seen = state.see(Some(value));
            return Ok(state.add(ask.request, seen));
        }
        let seen = &mut self.seen[number * problem.candidates.len() + undo.candidate];
        if *seen == ValueNumber::NOT_ASKED {
            *seen = state.see(problem.candidates[undo.candidate].device.attribute(name));
        }
        Ok(state.add(ask.request, *seen))
    }

    fn constraint_error(&self, undo: Undo) -> AllocateError {
        let ask = &self.problem.asks[undo.ask];
        AllocateError::Constraint {
            claim: self.problem.claims[ask.claim].claim.name.clone(),
            request: ask.ask.name.clone(),
            device: self.device(undo.candidate).id.clone(),
        }
    }

    /// Undoes the changes made for a device, in reverse order.
    pub(super) fn undo(&mut self, undo: Undo) {
        let Undo { ask, candidate, must: _, groups, counters, constraints, marked, chosen } = undo;
        let ask = &self.problem.asks[ask];
        if chosen && self.chosen.pop().is_some_and(|chosen| chosen.is_share) {
            self.shares.give_back(ask.equivalent, candidate);
        }
        if let Some(before) = marked {
            self.busy.set(candidate, before);
        }
        let first = self.problem.claims[ask.claim].first_constraint;
        for constraint in ask.constraints[..constraints].iter().rev() {
            self.constraints[first + constraint].remove(ask.request);
        }
        self.groups.go_back(groups);
        if counters {
            self.counters.give_back(candidate);
        }
    }
}
