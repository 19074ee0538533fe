//! Groups of flags that several programs share.

use std::path::PathBuf;

/// The cluster to connect to.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct KubeArgs {
    /// Kubeconfig file; defaults to the files of $KUBECONFIG, otherwise ~/.kube/config, otherwise the pod's
    /// service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig file; defaults to the current context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// What to log, and in which format.
#[derive(clap::Args, Clone, Debug)]
pub struct LogArgs {
    /// What to log: `LEVEL`, or `TARGET=LEVEL,…`
    #[arg(long, value_name = "FILTER", env = "DRANET_LOG", default_value = "info")]
    pub log: String,
    /// Format of log lines
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The format of a log line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One human-readable line.
    Text,
    /// One JSON object per line.
    Json,
}
