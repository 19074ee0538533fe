//! Scheduling policies: how a node is chosen among those on which a pod fits.

use std::sync::Arc;

use crate::claims::{ClaimError, Placement};
use crate::cluster::Cluster;

/// Processors that a pod requests for each GPU.
pub const POD_CPUS_PER_GPU: i64 = 12;
/// Memory that a pod requests for each GPU, in GiB.
pub const POD_GIB_PER_GPU: i64 = 96;

/// A pod to be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// A number of its own.
    pub uid: u64,
    /// Its GPUs, each with a NIC.
    pub gpus: u32,
}

/// A node on which the pod fits, and what it gets there.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node.
    pub node: usize,
    /// What the allocator gives the pod there.
    pub placement: Arc<Placement>,
}

/// A way to choose.
pub trait Policy {
    /// The score of each candidate, as the scheduler sums them up: the highest wins, and equal
    /// ones are drawn from at random.
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64>;

    /// The pod was bound.
    fn bound(&mut self, _pod: Pod, _chosen: &Candidate) -> Result<(), ClaimError> {
        Ok(())
    }

    /// The pod has ended.
    fn ended(&mut self, _pod: Pod) {}
}

/// The candidates with the highest score.
pub fn best(scores: &[i64]) -> Vec<usize> {
    let highest = scores.iter().max();
    (0..scores.len()).filter(|index| scores.get(*index) == highest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_highest_score_are_best() {
        assert_eq!(best(&[1, 5, 5, 0]), [1, 2]);
        assert_eq!(best(&[-3]), [0]);
        assert!(best(&[]).is_empty());
    }
}
