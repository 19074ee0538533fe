//! The scores of kube-scheduler 1.37.1, in its own integer arithmetic.
//!
//! Among the default plugins, `TaintToleration` gives every node here 100.
//! `NodeAffinity`, `PodTopologySpread`, `InterPodAffinity` and `ImageLocality` give all
//! nodes the same score or skip these pods, which prefer no node, belong to no service
//! and run an image that no node has. The remaining ones are `NodeResourcesFit`,
//! `NodeResourcesBalancedAllocation` and `DynamicResources`
//! (`pkg/scheduler/apis/config/v1/default_plugins.go`,
//! `pkg/scheduler/framework/plugins/{noderesources,dynamicresources}`).

use crate::cluster::Cluster;
use crate::machine::{NODE_CPUS_PER_GPU, NODE_GIB_PER_GPU};
use crate::policy::{Candidate, POD_CPUS_PER_GPU, POD_GIB_PER_GPU, Pod, Policy};

/// `MaxNodeScore`.
const SCORE_MAX: i64 = 100;
/// Weight of the plugin `DynamicResources`.
const DYNAMIC_RESOURCES_WEIGHT: i64 = 2;
/// Thousandths of a processor in a processor.
const MILLI: i64 = 1000;
/// Bytes in a GiB.
const GIB: i64 = 1 << 30;

/// `scoringStrategy.type` of the plugin `NodeResourcesFit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The default: nodes with the most room first.
    LeastAllocated,
    /// Nodes with the least room first.
    MostAllocated,
}

/// kube-scheduler without an extender.
#[derive(Clone, Copy, Debug)]
pub struct KubeScheduler {
    /// How nodes are ranked by CPU and memory.
    pub strategy: Strategy,
}

/// Processors or memory of a node.
#[derive(Clone, Copy, Debug)]
struct Amount {
    allocatable: i64,
    /// Requests of the pods on the node.
    before: i64,
    /// The same including the new pod.
    after: i64,
}

impl Policy for KubeScheduler {
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        let tiers: Vec<i64> = candidates.iter().map(|it| it.placement.tiers).collect();
        candidates
            .iter()
            .zip(normalised(&tiers))
            .map(|(candidate, tier)| {
                let amounts = amounts(pod, candidate.node, cluster);
                self.fit(amounts) + balance(amounts) + DYNAMIC_RESOURCES_WEIGHT * tier
            })
            .collect()
    }
}

impl KubeScheduler {
    /// `leastResourceScorer` and `mostResourceScorer`, with weight 1 for both resources.
    fn fit(self, amounts: [Amount; 2]) -> i64 {
        amounts
            .map(|amount| match self.strategy {
                Strategy::LeastAllocated if amount.after > amount.allocatable => 0,
                Strategy::LeastAllocated => {
                    (amount.allocatable - amount.after) * SCORE_MAX / amount.allocatable
                }
                Strategy::MostAllocated => {
                    amount.after.min(amount.allocatable) * SCORE_MAX / amount.allocatable
                }
            })
            .iter()
            .sum::<i64>()
            / 2
    }
}

fn amounts(pod: Pod, node: usize, cluster: &Cluster) -> [Amount; 2] {
    let (all, used) = (i64::from(cluster.gpus_of(node)), i64::from(cluster.gpus_in_use(node)));
    let amount = |per_node_gpu: i64, per_pod_gpu: i64| Amount {
        allocatable: all * per_node_gpu,
        before: used * per_pod_gpu,
        after: (used + i64::from(pod.gpus)) * per_pod_gpu,
    };
    [
        amount(NODE_CPUS_PER_GPU * MILLI, POD_CPUS_PER_GPU * MILLI),
        amount(NODE_GIB_PER_GPU * GIB, POD_GIB_PER_GPU * GIB),
    ]
}

/// `balancedResourceScorer`: how much more balanced the use of resources becomes.
fn balance(amounts: [Amount; 2]) -> i64 {
    let with = evenness(amounts.map(|amount| (amount.after, amount.allocatable)));
    let without = evenness(amounts.map(|amount| (amount.before, amount.allocatable)));
    SCORE_MAX / 2 + (SCORE_MAX / 2 + with - without) / 2
}

/// `balancedResourceScore` for two resources.
#[allow(clippy::cast_precision_loss, reason = "Kubernetes computes in doubles here")]
#[allow(clippy::cast_possible_truncation, reason = "between 50 and 100, cut as in Go")]
fn evenness(resources: [(i64, i64); 2]) -> i64 {
    let [a, b] = resources.map(|(used, of)| (used as f64 / of as f64).min(1.0));
    ((1.0 - ((a - b) / 2.0).abs()) * SCORE_MAX as f64) as i64
}

/// `DefaultNormalizeScore`: the highest becomes 100.
fn normalised(scores: &[i64]) -> Vec<i64> {
    match scores.iter().max() {
        None | Some(0) => scores.to_vec(),
        Some(highest) => scores.iter().map(|score| SCORE_MAX * score / highest).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(before: i64, after: i64, allocatable: i64) -> Amount {
        Amount { allocatable, before, after }
    }

    #[test]
    fn resources_are_scored_as_in_kubernetes() {
        // Cases of `TestLeastAllocatedScoringStrategy` and `TestMostAllocatedScoringStrategy`.
        let least = KubeScheduler { strategy: Strategy::LeastAllocated };
        let most = KubeScheduler { strategy: Strategy::MostAllocated };
        let unused = [amount(0, 3000, 4000), amount(0, 5000, 10000)];
        assert_eq!((least.fit(unused), most.fit(unused)), (37, 62));
        let larger = [amount(0, 3000, 6000), amount(0, 5000, 10000)];
        assert_eq!((least.fit(larger), most.fit(larger)), (50, 50));
        let over = [amount(3000, 6000, 4000), amount(0, 5000, 10000)];
        assert_eq!((least.fit(over), most.fit(over)), (25, 75));
    }

    #[test]
    fn balance_counts_the_change() {
        // 0.75 and 0.5 of the two resources: 87 with the pod, 100 without.
        assert_eq!(balance([amount(0, 3000, 4000), amount(0, 5000, 10000)]), 68);
        assert_eq!(balance([amount(0, 3000, 6000), amount(0, 5000, 10000)]), 75);
        assert_eq!(balance([amount(3000, 3000, 4000), amount(0, 5000, 10000)]), 87);
    }

    #[test]
    fn tiers_are_scaled_to_a_hundred() {
        assert_eq!(normalised(&[16, 14, 8]), [100, 87, 50]);
        assert_eq!(normalised(&[0, 0]), [0, 0]);
    }
}
