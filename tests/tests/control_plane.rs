//! The floor `control-plane`: what only Kubernetes itself can prove.
//!
//! All modules share one control plane. A test takes it, and makes what it needs
//! within [`tests::with_scope`]; one that needs the cluster for itself is put
//! into its module's list with `.alone()`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod control_plane {
    pub(crate) mod example;
    pub(crate) mod extender;
    pub(crate) mod lifecycle;
    pub(crate) mod scheduling;
    pub(crate) mod thin_line;
}

use std::process::ExitCode;

use control_plane::{example, extender, lifecycle, scheduling, thin_line};
use tests::{Options, floor};

fn main() -> ExitCode {
    let all = [
        lifecycle::tests(),
        scheduling::tests(),
        extender::tests(),
        example::tests(),
        thin_line::tests(),
    ];
    floor::run(Options::default(), all.into_iter().flatten())
}
