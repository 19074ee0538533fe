//! `fabric-controller`: places the pods of a job on one fabric.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    process::run::run_small(
        fabric_controller::server::run(fabric_controller::server::Args::parse()),
    )
}
