//! Entry point of the node driver's binary.

use node_driver::command::Command;
use node_driver::inspect;
use node_driver::modules;
use node_driver::probe;
use node_driver::runtime::hook;
use node_driver::vendor_driver;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Command::parse(std::env::args_os()) {
        Command::Drive(args) => process::run::run_small(node_driver::run(*args)),
        Command::Attach(args) => process::exit::end(hook::run(&args)),
        Command::Inspect(args) => process::run::run_small(inspect::run(*args)),
        Command::Modules(args) => process::exit::end(modules::run(&args)),
        Command::Probe(args) => process::exit::end(probe::run(&args)),
        Command::VendorDriver(command) => process::run::run_small(vendor_driver::run(command)),
    }
}
