//! The floor `node`: a real kubelet, containerd and runc, and our driver between
//! them and a planted machine whose Ethernet interfaces are real links.
//!
//! The whole binary runs in namespaces of its own, as root.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod node {
    pub(crate) mod interfaces;
    pub(crate) mod rdma;
}

use std::process::ExitCode;

use node::{interfaces, rdma};
use tests::{Options, floor, node::isolated};

fn main() -> ExitCode {
    isolated(|| {
        floor::run(Options::default(), [rdma::tests(), interfaces::tests()].into_iter().flatten())
    })
}
