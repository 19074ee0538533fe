//! `scheduler-ext`: the kube-scheduler extender.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    process::run::run_on_one_heap(scheduler_ext::run(scheduler_ext::args::Args::parse()))
}
