//! Which NUMA nodes suit all device plugins of a pod best: the topology hints of the kubelet
//! (`HintMerger` in `pkg/kubelet/cm/topologymanager/policy.go`, `generateDeviceTopologyHints` in
//! `pkg/kubelet/cm/devicemanager/topology_hints.go`).

/// A set of NUMA nodes, as bits.
pub type NumaNodes = u64;

/// How many devices of one device plugin are on each NUMA node.
#[derive(Clone, Debug)]
pub struct DevicesByNode {
    /// Those that the machine has.
    pub all: Vec<usize>,
    /// Those that are free.
    pub free: Vec<usize>,
}

/// NUMA nodes from which a pod could get its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The nodes.
    pub nodes: NumaNodes,
    /// Whether an empty machine could not do with fewer.
    pub is_preferred: bool,
}

impl Hint {
    /// The number of nodes.
    pub fn width(self) -> u32 {
        self.nodes.count_ones()
    }
}

impl DevicesByNode {
    /// All sets of NUMA nodes with enough free devices.
    fn hints(&self, wanted: usize) -> Vec<Hint> {
        let with = (0..).zip(&self.all).filter(|(_, count)| **count > 0);
        let nodes = with.fold(0, |nodes: NumaNodes, (node, _)| nodes | 1 << node);
        let sets = (1..=nodes).filter(|set| set & !nodes == 0);
        let enough = sets.clone().filter(|set| sum(&self.all, *set) >= wanted);
        let least = enough.map(NumaNodes::count_ones).min().unwrap_or_else(|| nodes.count_ones());
        let free = sets.filter(|set| sum(&self.free, *set) >= wanted);
        free.map(|nodes| Hint { nodes, is_preferred: nodes.count_ones() == least }).collect()
    }
}

fn sum(counts: &[usize], nodes: NumaNodes) -> usize {
    let own = (0..).zip(counts).filter(|(node, _)| nodes >> node & 1 == 1);
    own.map(|(_, count)| count).sum()
}

/// The NUMA nodes that suit all device plugins best, of each of which the pod gets `wanted` devices; `None` if
/// none suit all of them.
pub fn merge(plugins: &[DevicesByNode], wanted: usize) -> Option<Hint> {
    let hints: Vec<Vec<Hint>> = plugins.iter().map(|plugin| plugin.hints(wanted)).collect();
    let narrowest = hints.iter().filter_map(|hints| hints.iter().map(|hint| hint.width()).min());
    let target = narrowest.max().unwrap_or(0);
    let suiting = hints.into_iter().reduce(|all, more| {
        let pairs = all.iter().flat_map(|one| more.iter().map(|other| both(*one, *other)));
        pairs.collect()
    });
    let suiting = suiting?.into_iter().filter(|hint| hint.nodes != 0);
    suiting.reduce(|best, candidate| better(best, candidate, target))
}

fn both(one: Hint, other: Hint) -> Hint {
    let is_preferred = one.is_preferred && other.is_preferred && one.nodes == other.nodes;
    Hint { nodes: one.nodes & other.nodes, is_preferred }
}

/// The better of two hints (`HintMerger.compare`). Of two that are not preferred, the one whose
/// number of nodes is nearest to the target without exceeding it.
fn better(current: Hint, candidate: Hint, target: u32) -> Hint {
    if current.is_preferred != candidate.is_preferred {
        return if candidate.is_preferred { candidate } else { current };
    }
    let (of_current, of_candidate) = (current.width(), candidate.width());
    let is_better = if current.is_preferred || of_current > target || of_candidate == of_current {
        (of_candidate, candidate.nodes) < (of_current, current.nodes)
    } else {
        of_candidate > of_current && of_candidate <= target
    };
    if is_better { candidate } else { current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_compared_as_in_kubernetes() {
        // The cases that the comment in `HintMerger.compare` lists; the target is
        // `bestNonPreferredAffinityCount` there.
        let hint = |nodes, is_preferred| Hint { nodes, is_preferred };
        for (current, candidate, target, expected) in [
            (hint(0b11, false), hint(0b01, true), 0, hint(0b01, true)),
            (hint(0b11, true), hint(0b01, false), 0, hint(0b11, true)),
            (hint(0b10, true), hint(0b01, true), 0, hint(0b01, true)),
            (hint(0b111, false), hint(0b11, false), 1, hint(0b11, false)),
            (hint(0b01, false), hint(0b11, false), 2, hint(0b11, false)),
            (hint(0b11, false), hint(0b01, false), 2, hint(0b11, false)),
            (hint(0b01, false), hint(0b111, false), 2, hint(0b01, false)),
        ] {
            assert_eq!(better(current, candidate, target), expected);
        }
    }
}
