//! Selects the program that the binary runs.

use crate::args::Args;
use crate::inspect::InspectArgs;
use crate::modules::ModulesArgs;
use crate::probe::ProbeArgs;
use crate::runtime::hook::AttachArgs;
use crate::vendor_driver::VendorDriverCommand;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;

/// The program to run.
#[derive(Clone, Debug)]
pub enum Command {
    /// The driver.
    Drive(Box<Args>),
    /// The hook, `node-driver attach`.
    Attach(AttachArgs),
    /// What this node would publish, `node-driver inspect`.
    Inspect(Box<InspectArgs>),
    /// The loader of kernel modules, `node-driver modules`.
    Modules(ModulesArgs),
    /// The probe, `node-driver probe`.
    Probe(ProbeArgs),
    /// A vendor's NIC driver, `node-driver vendor-driver`.
    VendorDriver(VendorDriverCommand),
}

impl Command {
    /// Parses the process's arguments.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        match arguments.get(1).and_then(|argument| argument.to_str()) {
            Some("attach") => Self::Attach(AttachArgs::parse_from(&arguments[1..])),
            Some("inspect") => Self::Inspect(Box::new(InspectArgs::parse_from(&arguments[1..]))),
            Some("modules") => Self::Modules(ModulesArgs::parse_from(&arguments[1..])),
            Some("probe") => Self::Probe(ProbeArgs::parse_from(&arguments[1..])),
            Some("vendor-driver") => {
                Self::VendorDriver(VendorDriverCommand::parse_from(&arguments[1..]))
            }
            _ => Self::Drive(Box::new(drive(arguments))),
        }
    }
}

/// Parses the driver's arguments; conflicts between values, which clap cannot declare, end the
/// process as its own do.
fn drive(arguments: Vec<OsString>) -> Args {
    let args = Args::parse_from(arguments);
    if let Err(error) = args.sharing.check() {
        Args::command().error(ErrorKind::ArgumentConflict, error).exit();
    }
    args
}
