//! The node driver's process.

use clap::Parser;
use node_driver::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    serve::process::run(node_driver::run(Args::parse()))
}
