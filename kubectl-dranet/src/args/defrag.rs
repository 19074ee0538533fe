//! Flags of `defrag`.

use super::form::Form;
use super::pods::{PolicyArgs, SubjectArgs};
use super::source::{AdmissionArgs, SourceArgs};
use preemptor::defrag::MOVES_MAX;
use std::str::FromStr;

/// Flags of `defrag`.
#[derive(clap::Args, Clone, Debug)]
pub struct DefragArgs {
    /// The pods.
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// How many pods like that of the file are to fit at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Controller whose pods may be moved, as KIND/NAME, such as `Deployment/web`, besides those with
    /// the annotation `dranet.io/movable: "true"`. May be repeated
    #[arg(long = "movable-owner", value_name = "KIND/NAME")]
    pub movable_owners: Vec<OwnerName>,
    /// Maximum number of moves
    #[arg(long, value_name = "NUMBER", default_value_t = MOVES_MAX)]
    pub max_moves: usize,
    /// Evict the pods, one at a time through the Eviction API, and wait for the pod that takes the place
    /// of each; stop where it is on another node than planned
    #[arg(long, conflicts_with = "snapshot")]
    pub apply: bool,
    /// With --apply, how long to wait for each pod, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u32,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What else admission knows.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Admission's settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// A controller of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerName {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Not a valid value of `--movable-owner`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value `{0}`: write KIND/NAME, such as `Deployment/web`")]
pub struct OwnerNameError(String);

impl FromStr for OwnerName {
    type Err = OwnerNameError;

    fn from_str(text: &str) -> Result<Self, OwnerNameError> {
        let parts = text.split_once('/');
        let parts = parts.filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
        let (kind, name) = parts.ok_or_else(|| OwnerNameError(text.to_owned()))?;
        Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
    }
}
