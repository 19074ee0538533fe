//! The devices that kubelet gives a pod whose GPUs and NICs come from device plugins.
//!
//! Follows Kubernetes 1.37.1: `pkg/kubelet/cm/topologymanager/policy.go` (`HintMerger`) and
//! `pkg/kubelet/cm/devicemanager` (`generateDeviceTopologyHints`, `devicesToAllocate`). Both
//! plugins tell the NUMA node of each device. Where kubelet takes devices in the order of a Go map,
//! which is random, they are drawn here. Plugins prefer no device: NVIDIA's prefers GPUs with more
//! NVLink connections, and the GPUs of these machines have equally many.

use fastrand::Rng;

use crate::machine::{Devices, SimulatedMachine};

/// The policy of kubelet's topology manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyPolicy {
    /// The default: every device is as good as any other.
    None,
    /// Devices of one NUMA node if there are enough, otherwise any.
    BestEffort,
}

/// A set of NUMA nodes.
type Nodes = u64;

/// NUMA nodes from which a pod could get its devices of one plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hint {
    nodes: Nodes,
    is_preferred: bool,
}

impl Hint {
    fn width(self) -> u32 {
        self.nodes.count_ones()
    }
}

/// The devices of one plugin, each with its bit and its NUMA node.
struct Resource {
    devices: Vec<(Devices, Option<u32>)>,
    free: Devices,
}

/// The devices for a pod with this many GPUs and as many NICs; `None` if too few are free.
pub fn choose(
    machine: &SimulatedMachine,
    busy: Devices,
    gpus: u32,
    policy: TopologyPolicy,
    draw: &mut Rng,
) -> Option<Devices> {
    let resources = [machine.gpu_devices(), machine.compute_nics()];
    let resources = resources.map(|set| Resource::new(machine, set, busy));
    if resources.iter().any(|resource| resource.free.count_ones() < gpus) {
        return None;
    }
    let affinity = match policy {
        TopologyPolicy::None => 0,
        TopologyPolicy::BestEffort => merge(&resources, gpus),
    };
    Some(resources.iter().map(|resource| resource.take(gpus, affinity, draw)).sum())
}

impl Resource {
    fn new(machine: &SimulatedMachine, set: Devices, busy: Devices) -> Self {
        let numa = |bit: Devices| {
            let device = machine.of(bit).next();
            device.and_then(|device| machine.numa(device.address))
        };
        let bits = (0..Devices::BITS).map(|index| 1 << index).filter(|bit| set & bit != 0);
        Self { devices: bits.map(|bit| (bit, numa(bit))).collect(), free: set & !busy }
    }

    /// Number of devices of these NUMA nodes among some.
    fn count(&self, among: Devices, nodes: Nodes) -> u32 {
        u32::try_from(
            self.devices
                .iter()
                .filter(|(bit, numa)| {
                    among & bit != 0 && numa.is_some_and(|numa| nodes >> numa & 1 == 1)
                })
                .count(),
        )
        .unwrap_or(u32::MAX)
    }

    /// NUMA nodes with devices.
    fn nodes(&self) -> Nodes {
        let numa = self.devices.iter().filter_map(|(_, numa)| *numa);
        numa.map(|numa| 1 << numa).fold(0, |all, node: Nodes| all | node)
    }

    /// All sets of NUMA nodes with enough free devices (`generateDeviceTopologyHints`).
    fn hints(&self, wanted: u32) -> Vec<Hint> {
        let all = self.nodes();
        let sets: Vec<Nodes> = (1..=all).filter(|nodes| nodes & !all == 0).collect();
        let enough = sets.iter().filter(|nodes| self.count(Devices::MAX, **nodes) >= wanted);
        let least =
            enough.map(|nodes| nodes.count_ones()).min().unwrap_or_else(|| all.count_ones());
        let free = sets.iter().filter(|nodes| self.count(self.free, **nodes) >= wanted);
        free.map(|nodes| Hint { nodes: *nodes, is_preferred: nodes.count_ones() == least })
            .collect()
    }

    /// Takes devices of these NUMA nodes first, then others.
    fn take(&self, wanted: u32, affinity: Nodes, draw: &mut Rng) -> Devices {
        let mut free: Vec<(Devices, Option<u32>)> =
            self.devices.iter().copied().filter(|(bit, _)| self.free & bit != 0).collect();
        draw.shuffle(&mut free);
        free.sort_by_key(|(_, numa)| !numa.is_some_and(|numa| affinity >> numa & 1 == 1));
        free.iter().take(wanted as usize).map(|(bit, _)| bit).sum()
    }
}

/// The NUMA nodes that suit both plugins best (`HintMerger.Merge`); 0 if no hint does.
fn merge([gpus, nics]: &[Resource; 2], wanted: u32) -> Nodes {
    let hints = [gpus.hints(wanted), nics.hints(wanted)];
    let target = hints
        .iter()
        .filter_map(|hints| hints.iter().map(|hint| hint.width()).min())
        .max()
        .unwrap_or(0);
    let mut best: Option<Hint> = None;
    for gpu in &hints[0] {
        for nic in &hints[1] {
            let is_preferred = gpu.is_preferred && nic.is_preferred && gpu.nodes == nic.nodes;
            let candidate = Hint { nodes: gpu.nodes & nic.nodes, is_preferred };
            if candidate.nodes != 0 {
                best = Some(best.map_or(candidate, |best| better(best, candidate, target)));
            }
        }
    }
    best.map_or(0, |best| best.nodes)
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

    /// The NUMA nodes of the GPUs and NICs in a set, both sorted.
    fn numa(machine: &SimulatedMachine, devices: Devices) -> [Vec<u32>; 2] {
        [machine.gpu_devices(), machine.compute_nics()].map(|set| {
            let of = machine.of(devices & set);
            let mut nodes: Vec<u32> =
                of.filter_map(|device| machine.numa(device.address)).collect();
            nodes.sort_unstable();
            nodes
        })
    }

    #[test]
    fn best_effort_takes_one_numa_node_while_both_fit_there() {
        let machine = SimulatedMachine::load("azure-ndh100v5").unwrap();
        let mut draw = Rng::with_seed(1);
        for _ in 0..50 {
            let chosen = choose(&machine, 0, 4, TopologyPolicy::BestEffort, &mut draw).unwrap();
            // `HintMerger` takes the lowest of equally narrow sets.
            assert_eq!(numa(&machine, chosen), [vec![0; 4], vec![0; 4]]);
        }
        // Three GPUs of node 0 are in use, and three NICs of node 1: two do not fit on one node.
        let of_node = |set: Devices, node: u32| {
            let bits = (0..Devices::BITS).map(|index| 1 << index).filter(move |bit| set & bit != 0);
            let is_there = |bit: &Devices| {
                machine.of(*bit).any(|device| machine.numa(device.address) == Some(node))
            };
            bits.filter(is_there).take(3).sum::<Devices>()
        };
        let busy = of_node(machine.gpu_devices(), 0) | of_node(machine.compute_nics(), 1);
        let chosen = choose(&machine, busy, 2, TopologyPolicy::BestEffort, &mut draw).unwrap();
        assert_eq!(chosen.count_ones(), 4);
        assert_eq!(chosen & busy, 0);
        let [gpus, nics] = numa(&machine, chosen);
        assert_ne!(gpus, nics);
    }

    #[test]
    fn without_a_policy_devices_are_drawn() {
        let machine = SimulatedMachine::load("azure-ndh100v5").unwrap();
        let mut draw = Rng::with_seed(1);
        let mut apart = 0;
        for _ in 0..200 {
            let chosen = choose(&machine, 0, 1, TopologyPolicy::None, &mut draw).unwrap();
            let [gpus, nics] = numa(&machine, chosen);
            apart += u32::from(gpus != nics);
        }
        assert!((60..140).contains(&apart), "{apart}");
        assert_eq!(choose(&machine, 0, 9, TopologyPolicy::None, &mut draw), None);
    }

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
