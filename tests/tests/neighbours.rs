//! The suite `neighbours`: programs of other projects, as they are released, beside ours.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod neighbours {
    pub(crate) mod autoscaler;
    pub(crate) mod grown;
    pub(crate) mod karpenter;
    pub(crate) mod kinds;
    pub(crate) mod kueue;
    pub(crate) mod moves;
    pub(crate) mod outcome;
}

use std::process::ExitCode;

use neighbours::{autoscaler, karpenter, kueue, moves};
use tests::{Options, suite};

/// The control planes at the same time.
const TOGETHER: usize = 3;

fn main() -> ExitCode {
    let all = [autoscaler::tests(), karpenter::tests(), kueue::tests(), moves::tests()];
    suite::run_apart(TOGETHER, &Options::default(), all.into_iter().flatten())
}
