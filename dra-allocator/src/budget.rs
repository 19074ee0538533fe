//! Limits what a decision may cost.
//!
//! Tenants write expressions, and kube-apiserver accepts some that take minutes here. A budget is
//! asked inside compilation, evaluation and search. Once it is spent, the outcome is unknown
//! ([`Outcome::OverBudget`](crate::Outcome::OverBudget)); it is never taken for an answer.

use std::cell::Cell;
use std::fmt;

/// The work between two calls of the caller's function, some 50 microseconds.
const ASK_EVERY: u64 = 4096;

/// What compilation, evaluation and search may still cost, for one decision or one part of it.
///
/// One unit is about one node of an expression or one step of a pattern, some ten nanoseconds. This
/// crate reads no clock: the caller's function may.
pub struct Budget<'a> {
    left: Cell<u64>,
    unasked: Cell<u64>,
    stopped: Cell<bool>,
    stop: Option<&'a dyn Fn() -> bool>,
}

/// The budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent;

impl Budget<'static> {
    /// A budget that is never spent, for expressions of the operator and for tests.
    pub const fn unlimited() -> Self {
        Self::of_work(u64::MAX)
    }

    /// A budget of this much work.
    pub const fn of_work(units: u64) -> Self {
        let stopped = Cell::new(false);
        Self { left: Cell::new(units), unasked: Cell::new(0), stopped, stop: None }
    }
}

impl<'a> Budget<'a> {
    /// A budget of this much work that also ends when `stop` returns true. `stop` is called every
    /// few thousand units.
    pub const fn new(units: u64, stop: &'a dyn Fn() -> bool) -> Self {
        let stopped = Cell::new(false);
        Self { left: Cell::new(units), unasked: Cell::new(0), stopped, stop: Some(stop) }
    }

    /// A budget that ends when `stop` returns true.
    pub const fn until(stop: &'a dyn Fn() -> bool) -> Self {
        Self::new(u64::MAX, stop)
    }

    /// Returns true if nothing is left. Asks the caller's function.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0 || self.ask()
    }

    /// The work that is left, in units.
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    /// Gives the budget this much work again, for the next part of a decision. What the caller's
    /// function ended stays ended.
    pub fn renew(&self, units: u64) {
        if !self.stopped.get() {
            self.left.set(units);
        }
    }

    /// Returns true if the caller's function ended the budget.
    pub fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Asks the caller's function from time to time, for work that has limits of its own.
    pub(crate) fn pass(&self, units: u64) -> Result<(), Spent> {
        if self.left.get() == 0 { Err(Spent) } else { self.pass_within(units) }
    }

    fn pass_within(&self, units: u64) -> Result<(), Spent> {
        let unasked = self.unasked.get().saturating_add(units);
        self.unasked.set(unasked);
        if unasked >= ASK_EVERY && self.ask() { Err(Spent) } else { Ok(()) }
    }

    /// Takes work from the budget. Once this fails, it always fails.
    pub(crate) fn charge(&self, units: u64) -> Result<(), Spent> {
        let left = self.left.get();
        if units > left || left == 0 {
            self.left.set(0);
            return Err(Spent);
        }
        self.left.set(left - units);
        self.pass_within(units)
    }

    /// Asks the caller's function. Returns true if the budget is spent.
    fn ask(&self) -> bool {
        self.unasked.set(0);
        let stops = self.stop.is_some_and(|stop| stop());
        if stops {
            self.stopped.set(true);
            self.left.set(0);
        }
        stops
    }
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("left", &self.left.get()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_stays_spent() {
        let budget = Budget::of_work(10);
        assert_eq!(budget.charge(4), Ok(()));
        assert_eq!(budget.charge(7), Err(Spent));
        assert_eq!(budget.charge(1), Err(Spent));
        assert!(budget.is_spent());
    }

    #[test]
    fn the_caller_ends_a_budget_while_work_is_done() {
        let calls = Cell::new(0);
        let stop = || {
            calls.set(calls.get() + 1);
            calls.get() == 3
        };
        let budget = Budget::until(&stop);
        let done = (0..100_000).take_while(|_| budget.charge(1).is_ok()).count();
        assert_eq!((done, calls.get()), (3 * 4096 - 1, 3));
        assert_eq!(budget.charge(1), Err(Spent));
        assert_eq!(calls.get(), 3, "a spent budget asks nobody");
    }
}
