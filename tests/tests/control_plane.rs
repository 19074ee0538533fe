//! The floor `control-plane`: what only Kubernetes itself can prove.
//!
//! All modules share one control plane. A test takes it, and makes what it needs
//! within [`tests::with_scope`]; one that needs the cluster for itself is put
//! into its module's list with `.alone()`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod control_plane {
    pub(crate) mod lifecycle;
    pub(crate) mod scheduling;
}

use std::process::ExitCode;

use control_plane::{lifecycle, scheduling};
use tests::{Options, floor};

fn main() -> ExitCode {
    floor::run(Options::default(), [lifecycle::tests(), scheduling::tests()].into_iter().flatten())
}
