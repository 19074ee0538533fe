//! Selects the program that the binary runs.

use crate::args::Args;
use crate::inspect::InspectArgs;
use crate::probe::ProbeArgs;
use crate::runtime::hook::AttachArgs;
#[cfg(feature = "host-setup")]
use crate::setup::ProgramNode;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
#[cfg(feature = "host-setup")]
use host_setup::{modules::ModulesArgs, vendor_driver::VendorDriverCommand};
use std::ffi::OsString;
#[cfg(feature = "host-setup")]
use std::sync::Arc;

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
    #[cfg(feature = "host-setup")]
    Modules(ModulesArgs),
    /// The probe, `node-driver probe`.
    Probe(ProbeArgs),
    /// A vendor's NIC driver, `node-driver vendor-driver`.
    #[cfg(feature = "host-setup")]
    VendorDriver(VendorDriverCommand),
}

impl Command {
    /// Parses the process's arguments.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        match arguments.get(1).and_then(|argument| argument.to_str()) {
            Some("attach") => Self::Attach(AttachArgs::parse_from(&arguments[1..])),
            Some("inspect") => Self::Inspect(Box::new(InspectArgs::parse_from(&arguments[1..]))),
            #[cfg(feature = "host-setup")]
            Some("modules") => Self::Modules(ModulesArgs::parse_from(&arguments[1..])),
            Some("probe") => Self::Probe(ProbeArgs::parse_from(&arguments[1..])),
            #[cfg(feature = "host-setup")]
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

/// Runs `node-driver vendor-driver` to its end.
///
/// # Errors
/// As of the program itself.
#[cfg(feature = "host-setup")]
pub async fn vendor_driver(command: VendorDriverCommand) -> anyhow::Result<()> {
    host_setup::vendor_driver::run(command, |paths| Arc::new(ProgramNode::new(paths))).await
}
