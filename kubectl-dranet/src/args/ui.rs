//! Flags of `ui`.

use super::pods::PolicyArgs;
use super::source::{AdmissionArgs, SourceArgs};
use std::path::PathBuf;

/// Flags of `ui`.
#[derive(clap::Args, Clone, Debug)]
pub struct UiArgs {
    /// Write the page to this file, as it is now, and do not serve it
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Port of the loopback interface; by default one that is free
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "output")]
    pub port: u16,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What else admission knows.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Admission's settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
}
