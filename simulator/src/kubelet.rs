//! The devices that kubelet gives a pod whose GPUs and NICs come from device plugins.
//!
//! Follows Kubernetes 1.37.1: [`hints`](cluster_model::topology_policy::hints), and `devicesToAllocate` in
//! `pkg/kubelet/cm/devicemanager`. Both plugins tell the NUMA node of each device. Where kubelet takes devices in the order of a Go map,
//! which is random, they are drawn here. Plugins prefer no device: NVIDIA's prefers GPUs with more
//! NVLink connections, and the GPUs of these machines have equally many.

use cluster_model::topology_policy::TopologyPolicy;
use cluster_model::topology_policy::hints::{DevicesByNode, NumaNodes, merge};
use fastrand::Rng;

use crate::machine::{Devices, SimulatedMachine, bits};

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
        _ => merge(&resources.each_ref().map(Resource::by_node), gpus as usize)
            .map_or(0, |hint| hint.nodes),
    };
    Some(resources.iter().map(|resource| resource.take(gpus, affinity, draw)).sum())
}

impl Resource {
    fn new(machine: &SimulatedMachine, set: Devices, busy: Devices) -> Self {
        let devices = bits(set).map(|bit| (bit, machine.numa_of(bit)));
        Self { devices: devices.collect(), free: set & !busy }
    }

    /// How many devices each NUMA node has.
    fn by_node(&self) -> DevicesByNode {
        DevicesByNode { all: self.counts(Devices::MAX), free: self.counts(self.free) }
    }

    fn counts(&self, among: Devices) -> Vec<usize> {
        let numa = self.devices.iter().filter(|(bit, _)| among & bit != 0);
        let mut counts = Vec::new();
        for node in numa.filter_map(|(_, numa)| *numa) {
            let node = node as usize;
            counts.resize(counts.len().max(node + 1), 0);
            counts[node] += 1;
        }
        counts
    }

    /// Takes devices of these NUMA nodes first, then others.
    fn take(&self, wanted: u32, affinity: NumaNodes, draw: &mut Rng) -> Devices {
        let mut free: Vec<(Devices, Option<u32>)> =
            self.devices.iter().copied().filter(|(bit, _)| self.free & bit != 0).collect();
        draw.shuffle(&mut free);
        free.sort_by_key(|(_, numa)| !numa.is_some_and(|numa| affinity >> numa & 1 == 1));
        free.iter().take(wanted as usize).map(|(bit, _)| bit).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The NUMA nodes of the GPUs and NICs in a set, both sorted.
    fn numa(machine: &SimulatedMachine, devices: Devices) -> [Vec<u32>; 2] {
        [machine.gpu_devices(), machine.compute_nics()].map(|set| {
            let mut nodes: Vec<u32> =
                bits(devices & set).filter_map(|bit| machine.numa_of(bit)).collect();
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
            let there = bits(set).filter(|bit| machine.numa_of(*bit) == Some(node));
            there.take(3).sum::<Devices>()
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
}
