//! Reasons why a search ends early.

use super::super::error::{AllocateError, Failure};

/// Ends the search, or unwinds it by more than one step.
#[derive(Debug)]
pub(in crate::allocate) enum Halt {
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
