//! Scheduling policies: choose a node among those on which a pod fits.

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
    /// A unique number.
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

/// A scheduling policy.
pub trait Policy {
    /// The score of each candidate, as the scheduler would sum it up. The highest score
    /// wins; ties are broken at random.
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64>;

    /// Called when the pod was bound.
    fn bound(&mut self, _pod: Pod, _chosen: &Candidate) -> Result<(), ClaimError> {
        Ok(())
    }

    /// Called when the pod has ended.
    fn ended(&mut self, _pod: Pod) {}
}

/// Indices of the candidates with the highest score.
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
