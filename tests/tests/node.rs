//! The floor `node`: a real kubelet, containerd and runc, and our driver between
//! them and a planted machine whose Ethernet interfaces are real links.
//!
//! The whole binary runs in namespaces of its own, as root.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod node {
    pub(crate) mod campaign;
    pub(crate) mod dice;
    pub(crate) mod door;
    pub(crate) mod interfaces;
    pub(crate) mod plugin;
    pub(crate) mod rdma;
    pub(crate) mod trouble;
}

use std::process::ExitCode;

use node::{campaign, interfaces, rdma, trouble};
use tests::{Options, floor, node::isolated};

fn main() -> ExitCode {
    isolated(|| {
        let all = [rdma::tests(), interfaces::tests(), campaign::tests(), trouble::tests()];
        floor::run(Options::default(), all.into_iter().flatten())
    })
}
