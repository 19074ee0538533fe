//! `admission`: the mutating webhook.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    process::run::run(admission::server::run(admission::server::Args::parse()))
}
