//! `preemptor`: evicts pods of lower priority for pods that wait for devices.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    process::run::run_small(preemptor::server::run(preemptor::server::Args::parse()))
}
