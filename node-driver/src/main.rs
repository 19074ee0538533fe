//! Entry point of the node driver's binary.

use node_driver::command::Command;
use node_driver::inspect;
use node_driver::probe;
use node_driver::runtime::hook;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Command::parse(std::env::args_os()) {
        Command::Drive(args) => process::run::run_small(node_driver::run(*args)),
        Command::Attach(args) => process::exit::end(hook::run(&args)),
        Command::Inspect(args) => process::run::run_small(inspect::run(*args)),
        #[cfg(feature = "host-setup")]
        Command::Modules(args) => process::exit::end(host_setup::modules::run(&args)),
        Command::Probe(args) => process::exit::end(probe::run(&args)),
        #[cfg(feature = "host-setup")]
        Command::VendorDriver(command) => {
            process::run::run_small(node_driver::command::vendor_driver(command))
        }
    }
}
