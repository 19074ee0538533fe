//! Flags.

use crate::plan::Policy;
use serve::args::{KubeArgs, LogArgs, OperationsArgs, ServerArgs};

/// Turns the annotation `dranet.io/aligned-nics` of a pod into a ResourceClaimTemplate.
#[derive(clap::Parser, Clone, Debug)]
#[command(version)]
pub struct Args {
    /// The webhook's socket.
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
    /// Cluster-wide settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Cluster-wide settings.
#[derive(clap::Args, Clone, Debug)]
pub struct PolicyArgs {
    /// DeviceClass of whole GPUs; without it the class named as the GPU driver
    #[arg(long, value_name = "NAME")]
    pub gpu_class: Option<String>,
    /// DeviceClass of the NICs
    #[arg(long, value_name = "NAME", default_value = cluster_model::names::NIC_CLASS)]
    pub nic_class: String,
    /// Search steps on one node that a claim may take the scheduler at worst
    #[arg(long, value_name = "NUMBER", default_value_t = crate::plan::STEPS_MAX)]
    pub max_steps: u64,
    /// Namespace whose pods may set addresses and routes of NICs; may be repeated, `*` is all
    #[arg(long = "network-namespace", value_name = "NAME")]
    pub network_namespaces: Vec<String>,
}

impl From<PolicyArgs> for Policy {
    fn from(args: PolicyArgs) -> Self {
        let PolicyArgs { gpu_class, nic_class, max_steps, network_namespaces } = args;
        Self { gpu_class, nic_class, max_steps, network_namespaces }
    }
}
