//! The floor `guest`: virtual machines with a PCIe tree, two NUMA nodes, NICs
//! that come and go, and verbs.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod guest {
    pub(crate) mod pair;
    pub(crate) mod publication;
}

use std::process::ExitCode;

use guest::{pair, publication};
use tests::{Options, floor};

fn main() -> ExitCode {
    floor::run(Options::default(), [publication::tests(), pair::tests()].into_iter().flatten())
}
