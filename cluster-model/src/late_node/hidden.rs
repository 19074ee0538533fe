//! GPUs of pods without a claim for places: how many a node has, and what a pod can expect beside them. No
//! object says which ones they are, so every choice of them is as likely as any other.

use super::{LateDemand, LateNode};
use crate::view::{ClusterView, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{Chance, ChanceRequest, Level, Served, binomial};

/// The most GPUs among which those in use are looked for. With more, the kubelet's choice is that of a node
/// on which they are free.
const AMONG_MAX: usize = 16;

/// The GPUs in use on a node, by its pods' limits, of which no claim of this pool says which ones they
/// are.
pub(super) fn gpus(view: &ClusterView, node: &str, (pool, resource): (&str, &str)) -> usize {
    let known: BTreeSet<ObjectKey> = view
        .late_claims_by_key(pool)
        .filter_map(|(key, _)| {
            let (pod, _) = view.claim(key)?.pod.as_ref()?;
            Some(ObjectKey { namespace: key.namespace.clone(), name: pod.clone() })
        })
        .collect();
    let others = view.plugin_pods(node, resource).filter(|(pod, _)| !known.contains(*pod));
    others.map(|(_, units)| usize::try_from(units).unwrap_or(usize::MAX)).sum()
}

impl LateNode<'_> {
    /// The choices of GPUs with near NICs, over all choices of the GPUs that are in use; `None` if the
    /// kubelet refuses the pod, or has too few free GPUs, whichever they are.
    pub(super) fn chance(&self, demand: LateDemand, level: Level) -> Option<Chance> {
        let open = self.groups.count(&self.free_gpus);
        let all: usize = open.iter().sum();
        let hidden = self.hidden.min(all);
        if all - hidden < demand.gpus {
            return None;
        }
        let hidden = if all > AMONG_MAX { 0 } else { hidden };
        let mut served_in: BTreeMap<Vec<usize>, Served> = BTreeMap::new();
        let mut cases = Vec::new();
        for used in spreads(&open, hidden) {
            let left: Vec<usize> = open.iter().zip(&used).map(|(open, used)| open - used).collect();
            let Some(chosen) = self.groups.chosen(&left, demand.gpus) else { continue };
            let served = served_in
                .entry(chosen.clone())
                .or_insert_with(|| self.served(&chosen, demand, level));
            let left = chosen.iter().filter_map(|group| left.get(*group)).sum();
            cases.push((ways(&open, &used, served), binomial(left, demand.gpus)));
        }
        let common = cases.iter().fold(1, |common, (_, choices)| least_multiple(common, *choices));
        let served = cases.iter().map(|(ways, choices)| ways * (common / choices)).sum();
        (!cases.is_empty()).then(|| Chance { served, all: binomial(all, hidden) * common })
    }

    /// The choices among the free GPUs of these groups that find near NICs.
    fn served(&self, chosen: &[usize], demand: LateDemand, level: Level) -> Served {
        let request = ChanceRequest {
            gpus: self.groups.of_groups(chosen, &self.free_gpus),
            gpu_count: demand.gpus,
            nics: self.free_nics.clone(),
            nic_count: demand.nics,
        };
        self.topology.served(&request, level, self.groups.all())
    }
}

/// The pairs of a choice of the GPUs in use, so many of each group's open ones, and of one of the pod's GPUs,
/// of which none is in use.
fn ways(open: &[usize], used: &[usize], served: &Served) -> u128 {
    let pairs = served.iter().map(|(taken, of_pod)| {
        let groups = open.iter().zip(used).zip(taken);
        let beside = groups.map(|((open, used), taken)| binomial(open - taken, *used));
        of_pod * beside.product::<u128>()
    });
    pairs.sum()
}

/// The ways in which this many GPUs are in groups of these sizes: the number in each.
fn spreads(sizes: &[usize], count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![(Vec::new(), count)];
    for size in sizes {
        let longer = all.into_iter().flat_map(|(before, left): (Vec<usize>, usize)| {
            (0..=left.min(*size)).map(move |own| {
                (before.iter().copied().chain([own]).collect::<Vec<usize>>(), left - own)
            })
        });
        all = longer.collect();
    }
    all.into_iter().filter(|(_, left)| *left == 0).map(|(spread, _)| spread).collect()
}

/// The least common multiple.
fn least_multiple(one: u128, other: u128) -> u128 {
    let (mut divisor, mut rest) = (one, other);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (one / divisor) * other
}
