//! The state of a search: the choices so far and what they take.

use smallvec::SmallVec;

use super::super::constraint::{ConstraintState, ValueNumber};
use super::super::counters::Counters;
use super::super::groups::Groups;
use super::super::problem::Problem;
use super::super::shares::Shares;
use super::bits::Bits;
use super::derived::Derived;
use super::solution::Chosen;
use super::verdicts::Verdicts;

/// The state of a search.
pub(super) struct Search<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    pub(super) max_steps: Option<u64>,
    pub(super) steps: u64,
    /// The candidates that are in use, either before the search or by it.
    pub(super) busy: Bits,
    pub(super) verdicts: Verdicts,
    pub(super) shares: Shares,
    /// The state of each constraint, claim by claim.
    pub(super) constraints: Vec<ConstraintState>,
    /// The number of each value, by constraint and candidate.
    pub(super) seen: Vec<ValueNumber>,
    pub(super) derived: Derived,
    pub(super) counters: Counters<'a>,
    pub(super) groups: Groups,
    /// The choices so far, in order.
    pub(super) chosen: SmallVec<[Chosen; 4]>,
    pub(super) subrequests: SmallVec<[usize; 4]>,
}

impl<'p, 'a> Search<'p, 'a> {
    pub(super) fn new(problem: &'p Problem<'a>, max_steps: Option<u64>) -> Self {
        let candidates = problem.candidates.len();
        let constraints = problem
            .constraints
            .iter()
            .map(|(kind, _)| ConstraintState::new(*kind, problem.settings));
        let constraints: Vec<_> = constraints.collect();
        Self {
            problem,
            max_steps,
            steps: 0,
            busy: busy(problem),
            verdicts: Verdicts::new(problem.asks.len(), candidates),
            shares: Shares::new(candidates),
            seen: vec![ValueNumber::NOT_ASKED; constraints.len() * candidates],
            constraints,
            derived: Derived::default(),
            counters: Counters::default(),
            groups: Groups::default(),
            chosen: SmallVec::new(),
            subrequests: SmallVec::from_elem(0, problem.requests.len()),
        }
    }
}

/// The candidates in use before the search. Bits beyond the last candidate count as in use.
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
