//! Common parts of all programs in this workspace: flags for the cluster and the log, errors on one
//! line, and exit codes. The feature `runtime` adds threads, signals and logging; `client` adds a
//! Kubernetes client.

pub mod args;
#[cfg(feature = "runtime")]
pub mod background;
pub mod chain;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod eviction;
pub mod exit;
#[cfg(feature = "client")]
pub mod kubeconfig;
#[cfg(feature = "runtime")]
pub mod logging;
#[cfg(feature = "runtime")]
pub mod memory;
pub mod printable;
#[cfg(feature = "client")]
pub mod requests;
#[cfg(feature = "client")]
mod retries;
#[cfg(feature = "runtime")]
pub mod run;
