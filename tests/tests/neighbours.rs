//! The suite `neighbours`: programs of other projects, as they are released, beside ours.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod neighbours {
    pub(crate) mod karpenter;
    pub(crate) mod kinds;
    pub(crate) mod kueue;
    pub(crate) mod moves;
    pub(crate) mod outcome;
}

use std::process::ExitCode;

use neighbours::{karpenter, kueue, moves};
use tests::{Options, suite, suite::Test};

/// The control planes.
const COUNT: usize = 3;

fn main() -> ExitCode {
    let all = [karpenter::tests(), kueue::tests(), moves::tests()];
    // Each has a cluster to itself.
    let all = all.into_iter().flatten().map(Test::alone);
    suite::run_on(COUNT, &Options::default(), all)
}
