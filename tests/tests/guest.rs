//! The suite `guest`: virtual machines with a PCIe tree, two NUMA nodes, NICs
//! that come and go, and verbs.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod guest {
    pub(crate) mod churn;
    pub(crate) mod hardware;
    pub(crate) mod pair;
    pub(crate) mod publication;
    pub(crate) mod reload;
}

use std::process::ExitCode;

use guest::{churn, hardware, pair, publication, reload};
use tests::{
    Options,
    suite::{self, Test},
};

fn main() -> ExitCode {
    let all = [
        publication::tests(),
        pair::tests().unwrap(),
        hardware::tests(),
        reload::tests(),
        churn::tests(),
    ];
    let options = Options { tokens: true, ..Options::default() };
    suite::run(&options, all.into_iter().flatten().map(Test::twice_if_it_fails))
}
