//! Flags.

use crate::decide::{FullFabricPolicy, PlacementPolicy};
use crate::level_labels::LevelSource;
use crate::size_paths::SizePath;
use k8s_openapi::jiff::SignedDuration;
use serve::controller::ControllerArgs;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Places the pods of a job with the annotation `dranet.io/fabric` on one fabric.
///
/// Labels each node with its fabric, chooses a fabric with room for all pods of a group, and
/// removes the scheduling gates that admission added to them.
#[derive(clap::Parser, Clone, Debug)]
#[command(version)]
pub struct Args {
    /// What every controller has.
    #[command(flatten)]
    pub controller: ControllerArgs,
    /// File with drivers of accelerators and NICs that are not built in
    #[arg(long, value_name = "FILE")]
    pub drivers: Option<PathBuf>,
    /// Create PodGroups, so that kube-scheduler chooses the fabric of each group whose pods have no
    /// PodGroup of their workload; admission must run with the same flag. For these groups the flags
    /// about the placement of groups have no effect
    #[arg(long)]
    pub pod_groups: bool,
    /// How groups are placed.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Maximum number of nodes per second whose fabric labels are written
    #[arg(long, value_name = "NUMBER", default_value = "50")]
    pub label_rate: NonZeroU32,
    /// Labels of nodes from which the domains of a level below the fabric are copied, instead of the
    /// built-in ones: nvlink=KEY,KEY or block=KEY,KEY; the first that a node has wins.
    /// topology.volcano.sh/HyperNode and kueue.x-k8s.io/Topology stand for objects of these kinds.
    /// Once per level
    #[arg(long, value_name = "LEVEL=LABELS")]
    pub level_labels: Vec<LevelSource>,
    /// How many pods an object of a kind that is not built in has, by the paths of its fields:
    /// GROUP/VERSION/KIND=PATH*FIELD@TEMPLATE+…, for example
    /// example.com/v1/Farm=spec.roles[]*replicas@template. Repeat for several kinds
    #[arg(long, value_name = "RULE")]
    pub size_paths: Vec<SizePath>,
}

/// How groups are placed.
#[derive(clap::Args, Clone, Debug)]
pub struct PlacementArgs {
    /// Seconds to wait for missing pods of a group; after that, the pods that exist are placed if a
    /// fabric has room for the whole group
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub incomplete_seconds: u32,
    /// Seconds after which the fabric that lacks least for a waiting group is reserved for it
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub reserve_seconds: u32,
    /// What happens to a group if its fabric has no room for a pod that was created again
    #[arg(long, value_enum, default_value_t = FullFabricPolicy::Wait)]
    pub full_fabric: FullFabricPolicy,
    /// Fabrics (values of the label topology.dranet.io/fabric) to which an autoscaler adds nodes;
    /// groups with the annotation dranet.io/fabric-wait go there if no fabric has room in time.
    /// Repeat for several, or separate by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub growing_fabrics: Vec<String>,
}

impl From<PlacementArgs> for PlacementPolicy {
    fn from(args: PlacementArgs) -> Self {
        let PlacementArgs { incomplete_seconds, reserve_seconds, full_fabric, growing_fabrics } =
            args;
        Self {
            whole_within: SignedDuration::from_secs(incomplete_seconds.into()),
            starves_after: SignedDuration::from_secs(reserve_seconds.into()),
            full_fabric,
            growing: growing_fabrics,
        }
    }
}
