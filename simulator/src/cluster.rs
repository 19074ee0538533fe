//! The state of a simulated cluster: which devices of which node are in use.

use crate::claims::Claims;
use crate::machine::{Devices, SimulatedMachine};

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its kind: the index of its machine.
    pub kind: usize,
    /// The fabric of its NICs, from 0.
    pub fabric: usize,
    /// The NVLink domain of its GPUs, from 0 over all fabrics; `None` if nodes have no domains.
    pub domain: Option<usize>,
    /// The devices that pods hold.
    pub busy: Devices,
}

/// The nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The nodes; those of a fabric are adjacent.
    pub nodes: Vec<Node>,
    /// GPUs by kind of machine.
    gpu_masks: Vec<Devices>,
    idle: u64,
    gpus: u64,
}

impl Cluster {
    /// An idle cluster of `count` nodes that cycle through the kinds of machines. It has
    /// as few fabrics of at most `fabric_nodes` nodes as possible; their sizes differ by
    /// at most one node.
    pub fn new(machines: &[SimulatedMachine], count: usize, fabric_nodes: usize) -> Self {
        let fabrics = count.div_ceil(fabric_nodes.max(1)).max(1);
        let nodes = (0..count).map(|index| Node {
            kind: index % machines.len(),
            fabric: index * fabrics / count,
            domain: None,
            busy: 0,
        });
        let nodes: Vec<_> = nodes.collect();
        let gpus = nodes.iter().map(|node| u64::from(machines[node.kind].gpus)).sum();
        let gpu_masks = machines.iter().map(|machine| (1 << machine.gpus) - 1).collect();
        Self { nodes, gpu_masks, idle: gpus, gpus }
    }

    /// Divides each fabric into as few NVLink domains of at most `domain_nodes` nodes as possible; their
    /// sizes differ by at most one node.
    #[must_use]
    pub fn with_domains(mut self, domain_nodes: usize) -> Self {
        let mut before = 0;
        for nodes in self.nodes.chunk_by_mut(|one, next| one.fabric == next.fabric) {
            let (count, domains) = (nodes.len(), nodes.len().div_ceil(domain_nodes.max(1)));
            for (index, node) in nodes.iter_mut().enumerate() {
                node.domain = Some(before + index * domains / count);
            }
            before += domains;
        }
        self
    }

    /// The number of NVLink domains.
    pub fn domains(&self) -> usize {
        self.nodes.last().and_then(|node| node.domain).map_or(0, |domain| domain + 1)
    }

    /// GPUs of all nodes.
    pub fn gpus(&self) -> u64 {
        self.gpus
    }

    /// GPUs that no pod holds.
    pub fn idle_gpus(&self) -> u64 {
        self.idle
    }

    /// GPUs of a node that pods hold.
    pub fn gpus_in_use(&self, node: usize) -> u32 {
        let node = &self.nodes[node];
        (node.busy & self.gpu_masks[node.kind]).count_ones()
    }

    /// GPUs of a node.
    pub fn gpus_of(&self, node: usize) -> u32 {
        self.gpu_masks[self.nodes[node].kind].count_ones()
    }

    /// The number of fabrics.
    pub fn fabrics(&self) -> usize {
        self.nodes.last().map_or(0, |node| node.fabric + 1)
    }

    /// Assigns devices of a node to a pod.
    ///
    /// # Panics
    /// If a device is already in use.
    pub fn take(&mut self, node: usize, devices: Devices) {
        let mask = self.gpu_masks[self.nodes[node].kind];
        let busy = &mut self.nodes[node].busy;
        assert!(*busy & devices == 0, "a device is held twice");
        *busy |= devices;
        self.idle -= u64::from((devices & mask).count_ones());
    }

    /// Frees devices of a node.
    ///
    /// # Panics
    /// If a device is not in use.
    pub fn free(&mut self, node: usize, devices: Devices) {
        let mask = self.gpu_masks[self.nodes[node].kind];
        let busy = &mut self.nodes[node].busy;
        assert!(*busy & devices == devices, "a device is freed that no pod holds");
        *busy &= !devices;
        self.idle += u64::from((devices & mask).count_ones());
    }
}

/// The name of a node in Kubernetes.
pub fn node_name(node: usize) -> String {
    format!("node-{node:05}")
}

/// The name of a fabric in Kubernetes.
pub fn fabric_name(fabric: usize) -> String {
    format!("fabric-{fabric:03}")
}

/// The name of an NVLink domain in Kubernetes.
pub fn domain_name(domain: usize) -> String {
    format!("domain-{domain:03}")
}

/// The GPUs of a job's pods: whole machines, and one pod with the remainder.
pub fn pods(gpus: u32, claims: &Claims) -> Vec<u32> {
    let most = claims.machines.iter().map(|machine| machine.gpus).min().unwrap_or(1).max(1);
    let whole = std::iter::repeat_n(most, (gpus / most) as usize);
    whole.chain((!gpus.is_multiple_of(most)).then_some(gpus % most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_stay_within_fabrics() {
        let machines = [SimulatedMachine::load("azure-ndh100v5").unwrap()];
        let of = |cluster: &Cluster| {
            let pair = |node: &Node| (node.fabric, node.domain);
            cluster.nodes.iter().map(pair).collect::<Vec<_>>()
        };
        let plain = Cluster::new(&machines, 7, 4);
        assert!(of(&plain).iter().all(|(_, domain)| domain.is_none()));
        assert_eq!(plain.domains(), 0);
        let cluster = plain.with_domains(2);
        let expected = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 3)];
        assert_eq!(of(&cluster), expected.map(|(fabric, domain)| (fabric, Some(domain))));
        assert_eq!(cluster.domains(), 4);
    }
}
