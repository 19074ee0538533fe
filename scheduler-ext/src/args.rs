//! Flags.

use process::args::{KubeArgs, LogArgs};
use serve::args::{OperationsArgs, ServerArgs};

/// Ranks nodes for kube-scheduler by the whole cells that an allocation would keep.
#[derive(clap::Parser, Clone, Debug)]
#[command(version)]
pub struct Args {
    /// The extender's socket.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Health and metrics.
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// The cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}
