//! The command line.

use crate::cloud::CloudProvider;
use crate::plugin::args::PluginArgs;
use clap::Parser;
use serve::args::{KubeArgs, LogArgs, OperationsArgs};
use std::path::PathBuf;

/// Publish the RDMA NICs of this node as ResourceSlices, and the distances
/// between its GPUs and NICs as a NodeTopology
#[derive(Clone, Debug, Parser)]
#[command(name = "node-driver", version)]
#[command(after_help = "The container runtime runs `node-driver attach --help` as a hook.")]
pub struct Args {
    /// Directory below which the host's sys, proc, dev, run and etc are found
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Name of this machine's Node
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: String,
    /// Cluster to publish to
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Cloud whose metadata service is asked for machine type and fabric
    #[arg(long, value_enum, default_value_t = CloudProvider::None)]
    pub cloud: CloudProvider,
    /// Base address of the metadata service
    #[arg(long, value_name = "URL", default_value = "http://169.254.169.254")]
    pub imds_url: String,
    /// Publish once and exit
    #[arg(long)]
    pub once: bool,
    /// Seconds after which the machine is read again although nothing was heard
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub rescan_seconds: u64,
    /// The kubelet and the container runtime
    #[command(flatten)]
    pub plugin: PluginArgs,
    /// Health and metrics
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// Logging
    #[command(flatten)]
    pub log: LogArgs,
}
