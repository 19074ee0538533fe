//! The node driver's process.

use node_driver::attach::hook;
use node_driver::plugin::args::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Command::parse(std::env::args_os()) {
        Command::Drive(args) => serve::process::run_small(node_driver::run(*args)),
        Command::Attach(args) => serve::process::end(hook::run(&args)),
    }
}
