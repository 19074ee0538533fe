//! The search: depth first; the first complete solution wins.
//!
//! Follows `allocateOne` in `allocator_*.go`, step by step. `judge` holds the checks that do not
//! depend on the search, `take` what changes when a device is taken.

mod bits;
mod derived;
mod halt;
mod judge;
mod solution;
mod state;
mod take;
mod verdicts;

use self::state::Search;
use self::verdicts::Verdict;
use super::limits::MAX_DEVICES;
use super::problem::Problem;
use crate::budget::Spent;

pub(super) use self::halt::Halt;
pub(super) use self::solution::{Chosen, Solution};

/// The work of a step. The number of steps has its own limit.
const STEP: u64 = 16;

/// Runs the search. Returns the solution and the number of steps.
pub(super) fn search(
    problem: &Problem<'_>,
    max_steps: Option<u64>,
) -> (Result<Option<Solution>, Halt>, u64) {
    let mut search = Search::new(problem, max_steps);
    let found = search.one(Position::default(), false, 0);
    let Search { chosen, subrequests, shares, steps, .. } = search;
    (found.map(|found| found.then_some(Solution { chosen, subrequests, shares })), steps)
}

/// The position in the search: claim, request, subrequest and device to fill next.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    claim: usize,
    request: usize,
    subrequest: usize,
    device: usize,
    /// The number of devices chosen for earlier claims.
    chosen_before: usize,
}

impl Position {
    /// The position of the claim's next request.
    fn next_request(self) -> Self {
        Self { request: self.request + 1, subrequest: 0, device: 0, ..self }
    }
}

impl Search<'_, '_> {
    fn count_step(&mut self) -> Result<(), Halt> {
        if self.max_steps.is_some_and(|max| self.steps >= max) {
            return Err(Halt::OverBudget);
        }
        self.problem.budget.pass(STEP).map_err(|Spent| Halt::OverBudget)?;
        self.steps += 1;
        Ok(())
    }

    /// Fills this position and all later ones. `start` is the first candidate to try.
    fn one(&mut self, at: Position, in_subrequest: bool, start: usize) -> Result<bool, Halt> {
        self.count_step()?;
        let problem = self.problem;
        let Some(claim) = problem.claims.get(at.claim) else { return Ok(true) };
        let Some(request) = problem.requests_of(claim).get(at.request) else {
            let chosen_before = self.chosen.len();
            let next = Position { claim: at.claim + 1, chosen_before, ..Position::default() };
            return match self.one(next, false, 0) {
                // Another choice may give this claim fewer devices.
                Err(Halt::MaxSize) => Ok(false),
                other => other,
            };
        };
        if request.prioritized && !in_subrequest {
            return self.first_available(at, request.asks);
        }
        let number = request.first_ask + at.subrequest;
        let ask = &problem.asks[number];
        if ask.ask.is_all() && ask.all.is_empty() {
            return Ok(false);
        }
        let filled = i64::try_from(at.device).unwrap_or(i64::MAX);
        if filled >= ask.count {
            return self.one(at.next_request(), false, 0);
        }
        let room = MAX_DEVICES - (self.chosen.len() - at.chosen_before);
        if ask.count - filled > i64::try_from(room).unwrap_or(i64::MAX) {
            return Err(Halt::MaxSize);
        }
        if ask.ask.is_all() {
            return self.all(at, number, in_subrequest);
        }
        self.any(at, number, in_subrequest, start)
    }

    /// Tries subrequests in order. If all of them need too many devices, so does the request.
    fn first_available(&mut self, at: Position, count: usize) -> Result<bool, Halt> {
        let mut all_too_large = true;
        for subrequest in 0..count {
            match self.one(Position { subrequest, ..at }, true, 0) {
                Err(Halt::MaxSize) => {}
                Ok(true) => {
                    let request = self.problem.claims[at.claim].first_request + at.request;
                    self.subrequests[request] = subrequest;
                    return Ok(true);
                }
                Ok(false) => all_too_large = false,
                Err(halt) => return Err(halt),
            }
        }
        if all_too_large { Err(Halt::MaxSize) } else { Ok(false) }
    }

    /// Takes the next device for mode `All`. It is required; there is no alternative.
    fn all(&mut self, at: Position, ask: usize, in_subrequest: bool) -> Result<bool, Halt> {
        let candidate = self.problem.asks[ask].all[at.device];
        let Some(undo) = self.take(ask, candidate, true)? else { return Ok(false) };
        let done = self.one(Position { device: at.device + 1, ..at }, in_subrequest, 0);
        if !matches!(done, Ok(true)) {
            self.undo(undo);
        }
        done
    }

    /// Tries every suitable device, in order.
    fn any(
        &mut self,
        at: Position,
        ask: usize,
        in_subrequest: bool,
        start: usize,
    ) -> Result<bool, Halt> {
        let mut from = start;
        while let Some(candidate) = self.next_open(ask, from) {
            from = candidate + 1;
            if self.verdict(ask, candidate)? == Verdict::No {
                continue;
            }
            let Some(undo) = self.take(ask, candidate, false)? else { continue };
            let next = if self.problem.settings.quirks.permutations { 0 } else { candidate + 1 };
            let done = self.one(Position { device: at.device + 1, ..at }, in_subrequest, next);
            if matches!(done, Ok(true)) {
                return done;
            }
            self.undo(undo);
            done?;
        }
        Ok(false)
    }

    /// The next candidate that is neither in use nor known to be unsuitable.
    fn next_open(&self, ask: usize, from: usize) -> Option<usize> {
        let prepared = &self.problem.asks[ask];
        let refused = self.verdicts.refused(prepared.equivalent);
        if !prepared.ask.is_admin() {
            return bits::first_in_neither(self.busy.words(), refused, from);
        }
        // With admin access, only a device that the same claim already got counts as in use.
        let mut from = from;
        loop {
            let candidate = bits::first_in_neither(refused, refused, from)?;
            if !self.is_given(prepared.claim, candidate) {
                return Some(candidate);
            }
            from = candidate + 1;
        }
    }
}
