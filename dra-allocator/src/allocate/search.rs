//! The search: depth first, the first full solution wins.
//!
//! `allocateOne` in `allocator_*.go`, with the same steps. What does not depend on the search is
//! in `judge`, what taking a device changes in `take`.

mod bits;
mod judge;
mod take;

use std::rc::Rc;

use self::bits::Bits;
use self::judge::{Derived, Verdict, Verdicts};
use super::constraint::{ConstraintState, Seen};
use super::counters::Counters;
use super::error::{AllocateError, Failure};
use super::groups::Groups;
use super::prepare::Problem;
use super::shares::Shares;
use super::{Limits, MAX_DEVICES};
use crate::quantity::Quantity;

/// How many steps pass between two questions to the caller.
const STOP_INTERVAL: u64 = 256;

/// The search ends, or goes back further than one step.
#[derive(Debug)]
pub(super) enum Halt {
    /// The claim would get more devices than it can hold.
    MaxSize,
    Failed(Box<AllocateError>),
    OverBudget,
}

impl From<AllocateError> for Halt {
    fn from(error: AllocateError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Failure> for Halt {
    fn from(error: Failure) -> Self {
        Self::Failed(error)
    }
}

/// A device that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) candidate: usize,
    pub(super) ask: usize,
    /// For a share of a device: what it takes, in the order of the device's capacities.
    pub(super) share: Option<Rc<[Quantity]>>,
}

/// What was chosen.
#[derive(Debug)]
pub(super) struct Solution {
    /// For each claim.
    pub(super) chosen: Vec<Vec<Chosen>>,
    /// For each claim and request the number of the subrequest.
    pub(super) subrequests: Vec<Vec<usize>>,
}

/// Searches; the answer and the number of steps.
pub(super) fn search(
    problem: &Problem<'_>,
    limits: Limits<'_>,
) -> (Result<Option<Solution>, Halt>, u64) {
    let mut search = Search::new(problem, limits);
    let found = search.one(Position::default(), false, 0);
    let Search { chosen, subrequests, steps, .. } = search;
    (found.map(|found| found.then_some(Solution { chosen, subrequests })), steps)
}

/// What the search fills next: the device of this number, of this subrequest, …
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    claim: usize,
    request: usize,
    subrequest: usize,
    device: usize,
}

struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    limits: Limits<'p>,
    steps: u64,
    /// The candidates in use, before the search or by it.
    busy: Bits,
    /// The candidates that were taken and for which claims, the last one last.
    taken: Vec<(usize, usize)>,
    verdicts: Verdicts,
    shares: Shares,
    /// By constraint, those of the first claim first.
    constraints: Vec<ConstraintState>,
    /// By constraint and candidate.
    seen: Vec<Seen>,
    derived: Derived,
    counters: Counters<'a>,
    groups: Groups,
    chosen: Vec<Vec<Chosen>>,
    subrequests: Vec<Vec<usize>>,
}

impl<'p, 'a> Search<'p, 'a> {
    fn new(problem: &'p Problem<'a>, limits: Limits<'p>) -> Self {
        let candidates = problem.candidates.len();
        let kinds = problem.claims.iter().flat_map(|claim| &claim.constraints);
        let constraints = kinds.map(|(kind, _)| ConstraintState::new(*kind, problem.settings));
        let constraints: Vec<_> = constraints.collect();
        let subrequests = problem.claims.iter().map(|claim| vec![0; claim.requests.len()]);
        Self {
            problem,
            limits,
            steps: 0,
            busy: busy(problem),
            taken: Vec::new(),
            verdicts: Verdicts::new(&problem.asks, candidates),
            shares: Shares::new(candidates),
            seen: vec![Seen::NOT_ASKED; constraints.len() * candidates],
            constraints,
            derived: Derived::default(),
            counters: Counters::default(),
            groups: Groups::default(),
            chosen: vec![Vec::new(); problem.claims.len()],
            subrequests: subrequests.collect(),
        }
    }

    fn count_step(&mut self) -> Result<(), Halt> {
        if self.limits.max_steps.is_some_and(|max| self.steps >= max) {
            return Err(Halt::OverBudget);
        }
        if self.steps.is_multiple_of(STOP_INTERVAL) && self.limits.stop.is_some_and(|stop| stop()) {
            return Err(Halt::OverBudget);
        }
        self.steps += 1;
        Ok(())
    }

    /// Fills the position and all after it. `start` is the first candidate that is tried.
    fn one(&mut self, at: Position, in_subrequest: bool, start: usize) -> Result<bool, Halt> {
        self.count_step()?;
        let problem = self.problem;
        let Some(claim) = problem.claims.get(at.claim) else { return Ok(true) };
        let Some(request) = claim.requests.get(at.request) else {
            let next = Position { claim: at.claim + 1, ..Position::default() };
            return match self.one(next, false, 0) {
                // This claim may still be given fewer devices.
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
            let next = Position { claim: at.claim, request: at.request + 1, ..Position::default() };
            return self.one(next, false, 0);
        }
        let room = MAX_DEVICES - self.chosen[at.claim].len();
        if ask.count - filled > i64::try_from(room).unwrap_or(i64::MAX) {
            return Err(Halt::MaxSize);
        }
        if ask.ask.is_all() {
            return self.all(at, number, in_subrequest);
        }
        self.any(at, number, in_subrequest, start)
    }

    /// Tries subrequests in order. Where all need too many devices, so does the request.
    fn first_available(&mut self, at: Position, count: usize) -> Result<bool, Halt> {
        let mut all_too_large = true;
        for subrequest in 0..count {
            match self.one(Position { subrequest, ..at }, true, 0) {
                Err(Halt::MaxSize) => {}
                Ok(true) => {
                    self.subrequests[at.claim][at.request] = subrequest;
                    return Ok(true);
                }
                Ok(false) => all_too_large = false,
                Err(halt) => return Err(halt),
            }
        }
        if all_too_large { Err(Halt::MaxSize) } else { Ok(false) }
    }

    /// The next of all devices: it must be had, and there is no choice.
    fn all(&mut self, at: Position, ask: usize, in_subrequest: bool) -> Result<bool, Halt> {
        let candidate = self.problem.asks[ask].all[at.device];
        let Some(undo) = self.take(ask, candidate, true)? else { return Ok(false) };
        let done = self.one(Position { device: at.device + 1, ..at }, in_subrequest, 0);
        if !matches!(done, Ok(true)) {
            self.undo(undo);
        }
        done
    }

    /// Any device that fits, in order.
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

    /// The next candidate that is not in use and was not found unfit.
    fn next_open(&self, ask: usize, from: usize) -> Option<usize> {
        let prepared = &self.problem.asks[ask];
        let refused = self.verdicts.refused(ask);
        if !prepared.ask.is_admin() {
            return bits::first_in_neither(self.busy.words(), refused, from);
        }
        // With admin access a device is in use only where the same claim was given it.
        let mut from = from;
        loop {
            let candidate = bits::first_in_neither(refused, refused, from)?;
            if !self.taken.contains(&(candidate, prepared.claim)) {
                return Some(candidate);
            }
            from = candidate + 1;
        }
    }
}

/// The candidates in use before the search; those that do not exist count as in use.
fn busy(problem: &Problem<'_>) -> Bits {
    let mut busy = Bits::with_end(problem.candidates.len());
    for (number, candidate) in problem.candidates.iter().enumerate() {
        let in_use = problem.in_use[candidate.pool];
        if !in_use.is_free() && in_use.contains(&candidate.device.id.device) {
            busy.set(number, true);
        }
    }
    busy
}
