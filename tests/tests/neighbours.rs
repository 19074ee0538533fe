//! The suite `neighbours`: programs of other projects, as they are released, beside ours.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod neighbours {
    pub(crate) mod karpenter;
    pub(crate) mod kinds;
    pub(crate) mod kueue;
    pub(crate) mod outcome;
}

use std::process::ExitCode;

use neighbours::{karpenter, kueue};
use tests::{Options, suite};

fn main() -> ExitCode {
    suite::run(&Options::default(), karpenter::tests().into_iter().chain(kueue::tests()))
}
