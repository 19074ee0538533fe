//! Limits of a search.

use std::fmt;

/// The maximum number of devices in one claim (`AllocationResultsMaxSize`).
pub const MAX_DEVICES: usize = 32;

/// The limits at which a search gives up.
#[derive(Clone, Copy, Default)]
pub struct Limits<'a> {
    /// The maximum number of search steps.
    pub max_steps: Option<u64>,
    /// Called from time to time during the search; `true` ends it.
    pub stop: Option<&'a dyn Fn() -> bool>,
}

impl fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("max_steps", &self.max_steps)
            .field("stop", &self.stop.is_some())
            .finish()
    }
}

impl Limits<'_> {
    /// Limits a search to this number of steps.
    pub fn steps(max_steps: u64) -> Self {
        Self { max_steps: Some(max_steps), stop: None }
    }
}
