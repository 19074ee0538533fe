//! The node that openshift-psap/dra-rail-admission-webhook 19262fc chooses: "always prefer the
//! most-utilized node (fewest free slots first)" (`internal/webhook/allocator.go`).

use crate::cluster::Cluster;
use crate::policy::{Candidate, Pod, Policy};

/// The webhook's choice of a node.
#[derive(Clone, Copy, Debug)]
pub struct RailWebhook;

impl Policy for RailWebhook {
    fn scores(&mut self, _pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        candidates.iter().map(|it| i64::from(cluster.gpus_in_use(it.node))).collect()
    }
}
