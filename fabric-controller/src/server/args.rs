//! Flags.

use crate::decide::{FullFabricPolicy, PlacementPolicy};
use k8s_openapi::jiff::SignedDuration;
use process::args::{KubeArgs, LogArgs};
use serve::args::{LeaseArgs, OperationsArgs};
use std::num::NonZeroU32;

/// Places the pods of a job with the annotation `dranet.io/fabric` on one fabric.
///
/// Labels each node with its fabric, chooses a fabric with room for all pods of a group, and
/// lifts the scheduling gates that admission has given them.
#[derive(clap::Parser, Clone, Debug)]
#[command(version)]
pub struct Args {
    /// Health and metrics.
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// The cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
    /// Leadership among replicas.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Namespace of its Lease; without it the service account's
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Make PodGroups by which kube-scheduler puts groups on one fabric, instead of choosing the
    /// fabric; admission must run with the same flag. Of the flags about how groups are placed, none
    /// has an effect then
    #[arg(long)]
    pub pod_groups: bool,
    /// How groups are placed.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Nodes whose fabric labels are written in a second, at most
    #[arg(long, value_name = "NUMBER", default_value = "50")]
    pub label_rate: NonZeroU32,
}

/// How groups are placed.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct PlacementArgs {
    /// Seconds to wait for missing pods of a group; then the pods that exist are placed, if a
    /// fabric has room for the whole group
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub incomplete_seconds: u32,
    /// Seconds after which the fabric nearest to having room for a waiting group is reserved for it
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub reserve_seconds: u32,
    /// What happens to a group whose fabric has no room for a pod that was created again
    #[arg(long, value_enum, default_value_t = FullFabricPolicy::Wait)]
    pub full_fabric: FullFabricPolicy,
}

impl From<PlacementArgs> for PlacementPolicy {
    fn from(args: PlacementArgs) -> Self {
        let PlacementArgs { incomplete_seconds, reserve_seconds, full_fabric } = args;
        Self {
            whole_within: SignedDuration::from_secs(incomplete_seconds.into()),
            starves_after: SignedDuration::from_secs(reserve_seconds.into()),
            full_fabric,
        }
    }
}
