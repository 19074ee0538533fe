//! What every program of this workspace needs, servers or not: flags for the cluster
//! and the log, errors on one line, an exit code; with the feature `runtime` threads,
//! signals and logging, with `client` a Kubernetes client.

pub mod args;
#[cfg(feature = "runtime")]
pub mod background;
pub mod chain;
#[cfg(feature = "client")]
pub mod client;
pub mod exit;
#[cfg(feature = "runtime")]
pub mod logging;
#[cfg(feature = "runtime")]
pub mod memory;
#[cfg(feature = "runtime")]
pub mod run;
