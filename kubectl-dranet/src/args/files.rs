//! Flags of the commands that write files, or compare them.

use super::form::Form;
use super::source::SourceArgs;
use cluster_model::names::ADMISSION_NAMESPACE;
use dra_allocator::Quantity;
use std::path::PathBuf;

/// Flags of `snapshot`.
#[derive(clap::Args, Clone, Debug)]
pub struct SnapshotArgs {
    /// File to write
    #[arg(long, short, value_name = "FILE", default_value = "dranet-snapshot.gz")]
    pub output: PathBuf,
    /// Replace the names of nodes, namespaces, pods and claims, addresses, and UUIDs; equal names stay
    /// equal
    #[arg(long)]
    pub mask: bool,
    /// Namespace of the project's components
    #[arg(long, value_name = "NAME", default_value = ADMISSION_NAMESPACE)]
    pub admission_namespace: String,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Flags of `diff`.
#[derive(clap::Args, Clone, Debug)]
pub struct DiffArgs {
    /// Earlier snapshot, or a file or folder of objects
    pub before: PathBuf,
    /// Later snapshot, or a file or folder of objects
    pub after: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Flags of `migrate`.
#[derive(clap::Args, Clone, Debug)]
pub struct MigrateArgs {
    /// File with the operator's objects and the pods that use them; `-` reads standard input.
    /// May be repeated
    #[arg(long = "filename", short, value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Bandwidth of the NIC for each pod that shared one, such as `1G`; without it pods share NICs
    /// by their number alone, as with the device plugin's rdmaHcaMax
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    pub share: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = MigrateFormat::Yaml)]
    pub output: MigrateFormat,
}

/// Returns the text if it is a Kubernetes quantity.
fn quantity(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Quantity>();
    parsed.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Output format of `migrate`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrateFormat {
    /// The documents, with the chart's values in a comment; notes go to standard error.
    Yaml,
    /// One JSON document: values, documents, notes.
    Json,
}

/// Flags of `completion`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct CompletionArgs {
    /// Shell to complete for; `kubectl` writes the script `kubectl_complete-dranet`
    #[arg(value_enum)]
    pub shell: Shell,
}

/// The shell to complete for.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash, for `kubectl-dranet`.
    Bash,
    /// fish, for `kubectl-dranet`.
    Fish,
    /// kubectl, for `kubectl dranet` in any shell.
    Kubectl,
    /// `PowerShell`, for `kubectl-dranet`.
    Powershell,
    /// zsh, for `kubectl-dranet`.
    Zsh,
}

/// Flags of `man`.
#[derive(clap::Args, Clone, Debug)]
pub struct ManArgs {
    /// Folder for the pages of all commands; by default the main page is shown
    #[arg(long, short, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}
