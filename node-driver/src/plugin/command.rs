//! Which of its two programs the binary is.

use crate::args::Args;
use crate::attach::hook::AttachArgs;
use clap::Parser;
use std::ffi::OsString;

/// What the binary is asked to be.
#[derive(Clone, Debug)]
pub enum Command {
    /// The driver.
    Drive(Box<Args>),
    /// The hook, `node-driver attach`.
    Attach(AttachArgs),
}

impl Command {
    /// From the process's arguments.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        if arguments.get(1).is_some_and(|argument| argument == "attach") {
            Self::Attach(AttachArgs::parse_from(&arguments[1..]))
        } else {
            Self::Drive(Box::new(Args::parse_from(arguments)))
        }
    }
}
