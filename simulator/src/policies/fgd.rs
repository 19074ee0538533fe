//! FGD: fragmentation gradient descent (Weng et al., "Beware of Fragmentation: Scheduling
//! GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC '23), for whole GPUs.
//!
//! A node's fragmentation is the expected number of its free GPUs that a task drawn from
//! the workload cannot use: all free GPUs if they are too few for the task, otherwise
//! none. A pod goes to the node whose fragmentation grows least. Ties are broken at
//! random, because the paper ranks by nothing else.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::policy::{Candidate, Pod, Policy};

/// FGD with the tasks of a workload.
#[derive(Clone, Debug)]
pub struct Fgd {
    /// Number of pods by their number of GPUs.
    pods: BTreeMap<u32, i64>,
}

impl Fgd {
    /// FGD for a workload of pods with these GPUs.
    pub fn new(pods: impl IntoIterator<Item = u32>) -> Self {
        let mut counts = BTreeMap::new();
        for gpus in pods {
            *counts.entry(gpus).or_default() += 1;
        }
        Self { pods: counts }
    }

    /// Expected fragmentation of a node with this many free GPUs, times the number of pods.
    fn fragmentation(&self, free: u32) -> i64 {
        let too_large = self.pods.range(free + 1..).map(|(_, count)| count);
        i64::from(free) * too_large.sum::<i64>()
    }
}

impl Policy for Fgd {
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        candidates
            .iter()
            .map(|candidate| {
                let free = cluster.gpus_of(candidate.node) - cluster.gpus_in_use(candidate.node);
                self.fragmentation(free) - self.fragmentation(free - pod.gpus)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragmentation_is_what_the_drawn_task_cannot_use() {
        // Half of the pods have one GPU, a quarter two, a quarter eight.
        let fgd = Fgd::new([1, 1, 2, 8]);
        let expected: Vec<_> = (0..=8).map(|free| fgd.fragmentation(free)).collect();
        assert_eq!(expected, [0, 2, 2, 3, 4, 5, 6, 7, 0]);
    }
}
