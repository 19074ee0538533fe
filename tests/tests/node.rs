//! The suite `node`: a real kubelet, containerd and runc, and our driver between
//! them and a planted machine whose Ethernet interfaces are real links.
//!
//! The whole binary runs in separate namespaces, as root.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod node {
    pub(crate) mod accidents;
    pub(crate) mod api_partition;
    pub(crate) mod campaign;
    pub(crate) mod hosts;
    pub(crate) mod interfaces;
    pub(crate) mod late;
    pub(crate) mod memory;
    pub(crate) mod nri;
    pub(crate) mod programs;
    pub(crate) mod rdma;
    pub(crate) mod sandboxes;
    pub(crate) mod settings;
    pub(crate) mod surroundings;
    pub(crate) mod trouble;
    pub(crate) mod update;
    pub(crate) mod user;
}

use std::process::ExitCode;

use node::{
    accidents, campaign, hosts, interfaces, late, memory, nri, rdma, sandboxes, settings,
    surroundings, trouble, update,
};
use tests::{Options, node::isolated, suite};

fn main() -> ExitCode {
    isolated(|| {
        let all = [
            rdma::tests(),
            memory::tests(),
            interfaces::tests(),
            hosts::tests(),
            nri::tests(),
            settings::tests(),
            sandboxes::tests(),
            surroundings::tests(),
            campaign::tests(),
            accidents::tests(),
            trouble::tests(),
            update::tests(),
            late::tests(),
        ];
        suite::run(&Options::default(), all.into_iter().flatten())
    })
}
