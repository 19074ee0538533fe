//! The suite `scale`: the whole system on a control plane with a thousand nodes, as one. Kubelets and
//! GPU drivers are played by this process; everything else is real.
//!
//! First pods are bound side by side: by annotation, by an equal claim that somebody has written, and
//! without devices. Then pods, jobs and nodes come and go for some minutes, all our programs are
//! replaced and the API server restarts meanwhile. Last, programs, the control plane and nodes fail one after
//! another. [`scale::observer`] watches the API server all the
//! time and keeps what must never happen; [`scale::bars`] has the limits.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod scale {
    pub(crate) mod bars;
    pub(crate) mod chart;
    pub(crate) mod compare;
    pub(crate) mod course;
    pub(crate) mod drivers;
    pub(crate) mod faults;
    pub(crate) mod gang;
    pub(crate) mod instant;
    pub(crate) mod kubelets;
    pub(crate) mod lifetimes;
    pub(crate) mod lines;
    pub(crate) mod load;
    pub(crate) mod observer;
    pub(crate) mod requests;
    pub(crate) mod shapes;
    pub(crate) mod size;
    pub(crate) mod usage;
    pub(crate) mod whole;
}

use std::{process::ExitCode, sync::Arc};

use scale::whole;
use tests::{Options, audit::Audit, suite};

fn main() -> ExitCode {
    let audit = Arc::new(Audit::prepare().unwrap());
    let options = Options { apiserver_args: audit.flags(), ..Options::default() };
    suite::run(&options, [whole::test(audit)])
}
