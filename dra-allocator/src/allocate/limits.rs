//! Limits of a search.

use crate::budget::Budget;

/// The maximum number of devices in one claim (`AllocationResultsMaxSize`).
pub const MAX_DEVICES: usize = 32;

/// The limits at which a search gives up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    /// The maximum number of search steps.
    pub max_steps: Option<u64>,
    /// What expressions and the search may cost, together with all else that has this budget. Tenants
    /// write expressions: without a budget, one search may take minutes.
    pub budget: Option<&'a Budget<'a>>,
}

impl<'a> Limits<'a> {
    /// Limits a search to this number of steps, for claims with trusted expressions.
    pub fn steps(max_steps: u64) -> Self {
        Self { max_steps: Some(max_steps), budget: None }
    }

    /// Limits a search to this number of steps, and its work to a budget.
    pub fn within(max_steps: u64, budget: &'a Budget<'a>) -> Self {
        Self { max_steps: Some(max_steps), budget: Some(budget) }
    }
}
