//! The suite `control-plane`: what only Kubernetes itself can prove.
//!
//! There are two control planes. A test creates what it needs within [`tests::with_scope`]. A test
//! that needs the cluster for itself is in its module's list with `.alone()`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod control_plane {
    pub(crate) mod answers;
    pub(crate) mod bench;
    pub(crate) mod burst;
    pub(crate) mod churn;
    pub(crate) mod doctor;
    pub(crate) mod documented;
    pub(crate) mod driver_end;
    pub(crate) mod driver_policy;
    pub(crate) mod every_answer;
    pub(crate) mod example;
    pub(crate) mod extender;
    pub(crate) mod fabric;
    pub(crate) mod fabric_policy;
    pub(crate) mod faulty_extender;
    pub(crate) mod fleet;
    pub(crate) mod forecasts;
    pub(crate) mod gates;
    pub(crate) mod gpu_sharing;
    pub(crate) mod kubectl;
    pub(crate) mod lifecycle;
    pub(crate) mod nic_pools;
    pub(crate) mod nic_roles;
    pub(crate) mod nic_sharing;
    pub(crate) mod other_nics;
    pub(crate) mod own_scheduler;
    pub(crate) mod pinned;
    pub(crate) mod played_kubelet;
    pub(crate) mod plugin_gpus;
    pub(crate) mod pods;
    pub(crate) mod prediction;
    pub(crate) mod preemption;
    pub(crate) mod rights;
    pub(crate) mod scheduling;
    pub(crate) mod several_nics;
    pub(crate) mod thin_line;
    pub(crate) mod trial;
    pub(crate) mod upstream_examples;
    pub(crate) mod webhook;
    pub(crate) mod worth;
}

use std::{env, process::ExitCode};

use control_plane::{
    answers, bench, burst, churn, doctor, documented, driver_end, driver_policy, every_answer,
    example, extender, fabric, fabric_policy, faulty_extender, fleet, forecasts, gates,
    gpu_sharing, kubectl, lifecycle, nic_pools, nic_roles, nic_sharing, other_nics, own_scheduler,
    pinned, plugin_gpus, pods, prediction, preemption, rights, scheduling, several_nics, thin_line,
    trial, upstream_examples, webhook, worth,
};
use tests::{Options, audit::Audit, suite};

fn main() -> ExitCode {
    let all = [
        lifecycle::tests(),
        scheduling::tests(),
        extender::tests(),
        faulty_extender::tests(),
        forecasts::tests(),
        gates::tests(),
        gpu_sharing::tests(),
        example::tests(),
        thin_line::tests(),
        trial::tests(),
        documented::tests(),
        kubectl::tests(),
        doctor::tests(),
        bench::tests(),
        upstream_examples::tests(),
        prediction::tests(),
        preemption::tests(),
        every_answer::tests(),
        webhook::tests(),
        answers::tests(),
        other_nics::tests(),
        own_scheduler::tests(),
        pinned::tests(),
        plugin_gpus::tests(),
        pods::tests(),
        burst::tests(),
        churn::tests(),
        fabric::tests(),
        fabric_policy::tests(),
        driver_policy::tests(),
        driver_end::tests(),
        fleet::tests(),
        nic_pools::tests(),
        nic_roles::tests(),
        nic_sharing::tests(),
        several_nics::tests(),
        worth::tests(),
    ];
    let audit = Audit::prepare().unwrap();
    let options = Options { apiserver_args: audit.flags(), ..Options::default() };
    let code = suite::run_on(2, &options, all.into_iter().flatten());
    // Only all tests together use all permissions.
    if env::args().len() == 1 {
        rights::compare(&audit).unwrap();
    }
    code
}
