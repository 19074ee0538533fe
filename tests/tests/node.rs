//! The suite `node`: a real kubelet, containerd and runc, and our driver between
//! them and a planted machine whose Ethernet interfaces are real links.
//!
//! The whole binary runs in separate namespaces, as root. `$DRANET_NODE_PART` is 1 or 2 for one of two parts,
//! each with a machine of its own.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod node {
    pub(crate) mod accidents;
    pub(crate) mod api_partition;
    pub(crate) mod campaign;
    pub(crate) mod counted;
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
    accidents, campaign, counted, hosts, interfaces, late, memory, nri, rdma, sandboxes, settings,
    surroundings, trouble, update,
};
use tests::{Options, node::isolated, setting, suite};

fn main() -> ExitCode {
    isolated(|| {
        let part = setting("DRANET_NODE_PART", 0).unwrap();
        let first = [
            rdma::tests(),
            memory::tests(),
            interfaces::tests(),
            hosts::tests(),
            nri::tests(),
            settings::tests(),
            sandboxes::tests(),
        ];
        let second = [
            surroundings::tests(),
            campaign::tests(),
            accidents::tests(),
            trouble::tests(),
            update::tests(),
            late::tests(),
            counted::tests(),
        ];
        let first = first.into_iter().flatten().filter(|_| part != 2);
        let second = second.into_iter().flatten().filter(|_| part != 1);
        suite::run(&Options::default(), first.chain(second))
    })
}
