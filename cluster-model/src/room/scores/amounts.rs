//! Points for free and for evenly used CPU and memory (`plugins/noderesources`).

use super::MOST;
use crate::room::amounts::{Amounts, NonZero};
use crate::room::{Ask, Room};

/// The resources that count.
const COUNTED: [&str; 2] = ["cpu", "memory"];

impl Room<'_> {
    /// The points for what is free on a node and for its even use; `None` if its resources are not known.
    pub(super) fn points_for_amounts(&self, node: &str, ask: &Ask) -> Option<[i64; 2]> {
        let info = self.nodes.get(node)?;
        let allocatable = info.facts().and_then(|facts| facts.allocatable.as_ref())?;
        let used = self.used_on(node, info, ask);
        let mut with_pod = used.non_zero;
        with_pod.add(ask.non_zero, 1);
        let all = COUNTED.map(|name| counted(allocatable, name));
        let requested = COUNTED.map(|name| counted(&ask.requests, name));
        let used = COUNTED.map(|name| counted(&used.amounts, name));
        Some([free(with_pod, all), even(requested, used, all)])
    }
}

/// An amount as the plugins count it: CPU in thousandths, memory in bytes.
fn counted(amounts: &Amounts, name: &str) -> i64 {
    if name == "cpu" { amounts.get(name) } else { amounts.units(name) }
}

/// `leastResourceScorer`: the free part of each resource.
fn free(used: NonZero, all: [i64; 2]) -> i64 {
    let parts = all.into_iter().zip([used.cpu, used.memory / 1000]).filter(|(all, _)| *all > 0);
    let parts = parts.map(|(all, used)| if used > all { 0 } else { (all - used) * MOST / all });
    let parts: Vec<i64> = parts.collect();
    let number = i64::try_from(parts.len()).unwrap_or(1).max(1);
    parts.iter().sum::<i64>() / number
}

/// `balancedResourceScorer`: whether the pod makes the used parts of the resources more equal.
fn even(requested: [i64; 2], used: [i64; 2], all: [i64; 2]) -> i64 {
    if requested == [0, 0] {
        return 0;
    }
    let with_pod = [used[0] + requested[0], used[1] + requested[1]];
    MOST / 2 + (MOST / 2 + evenness(with_pod, all) - evenness(used, all)) / 2
}

/// `balancedResourceScore`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "kube-scheduler computes with the same conversions"
)]
fn evenness(used: [i64; 2], all: [i64; 2]) -> i64 {
    let parts = all.into_iter().zip(used).filter(|(all, _)| *all > 0);
    let parts: Vec<f64> = parts.map(|(all, used)| (used as f64 / all as f64).min(1.0)).collect();
    let deviation = match parts[..] {
        [cpu, memory] => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * MOST as f64) as i64
}
