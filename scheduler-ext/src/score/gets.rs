//! What a pod gets on a node.

use cluster_model::late_node::Expectation;
use std::cmp::Ordering;
use std::fmt;
use topology_graph::{Pair, PathKind, Topology};

/// How far the NIC of a pair is from its GPU. Smaller is nearer: first the path, then whether both
/// are on one socket, for which `nvidia-smi topo -m` has no word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    /// The path.
    pub path: PathKind,
    /// Whether the path is SYS, and the devices are not known to be on one CPU socket.
    pub leaves_socket: bool,
}

impl Reach {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { path: PathKind::Unknown, leaves_socket: false };

    /// How far the devices of a pair are apart.
    pub fn new(topology: &Topology, pair: &Pair) -> Self {
        let path = pair.path;
        let leaves_socket = path == PathKind::Sys && !topology.shares_socket(pair.gpu, pair.nic);
        Self { path, leaves_socket }
    }
}

/// The word of the path, and what it leaves out.
impl fmt::Display for Reach {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, leaves_socket } = self;
        match path {
            PathKind::Sys if !leaves_socket => write!(out, "{path} within a socket"),
            _ => write!(out, "{path}"),
        }
    }
}

/// What a pod can expect when it starts, on a node that binds NICs late. Smaller is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AtStart {
    /// The choices of GPUs that leave the pod without NICs as near as it asks for, in eighths of all
    /// choices that the kubelet has, rounded up. All of them if nothing is known.
    pub missed: u32,
    /// The same for each nearer level, added up.
    pub nearer: u32,
}

impl AtStart {
    /// The parts in which choices are counted.
    pub const PARTS: u32 = 8;

    /// Nothing is known about the node.
    pub const UNKNOWN: Self = Self { missed: Self::PARTS, nearer: Self::PARTS * 5 };

    /// The same in parts.
    pub fn new(expected: &Expectation) -> Self {
        Self { missed: expected.missed(Self::PARTS), nearer: expected.missed_nearer(Self::PARTS) }
    }
}

/// What a pod gets on a node. Smaller is better: first the alternatives, then what it can expect when
/// it starts, then the farthest pair, then GPUs that other pods use, then degraded NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gets {
    /// The sum of the indices of the chosen alternatives in `firstAvailable`; 0 if each
    /// is the first. Equally good alternatives count the same.
    pub alternative: u32,
    /// On a node that binds NICs late; `None` if the pod gets its NICs by name.
    pub at_start: Option<AtStart>,
    /// The farthest of the GPU-NIC pairs that the pod gets; `None` if it gets no GPU or no
    /// NIC.
    pub farthest: Option<Reach>,
    /// GPUs of which other claims hold a part.
    pub shared: u32,
    /// NICs whose PCIe link runs below its capability, or whose port is down.
    pub degraded: u32,
}

impl Gets {
    fn order(&self) -> (u32, Option<AtStart>, Option<Reach>, u32, u32) {
        (self.alternative, self.at_start, self.farthest, self.shared, self.degraded)
    }
}

impl PartialOrd for Gets {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Gets {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology_graph::fixture::{machine, plant};
    use topology_graph::{HostRoot, read};

    fn topology(text: &str) -> Topology {
        let root = tempfile::tempdir().unwrap();
        plant(text, root.path()).unwrap();
        Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0
    }

    /// `nvidia-smi topo -m` says SYS of both.
    #[test]
    fn the_socket_of_the_gpu_is_nearer_than_the_other() {
        let topology = topology(machine("epyc-nps4-sockets").unwrap());
        let gpu = topology.gpus()[0].address;
        let mut reaches: Vec<_> = topology
            .nics()
            .iter()
            .map(|nic| Pair { gpu, nic: nic.address, path: topology.path(gpu, nic.address) })
            .map(|pair| Reach::new(&topology, &pair))
            .collect();
        reaches.sort_unstable();
        let shown: Vec<_> = reaches.iter().map(Reach::to_string).collect();
        assert_eq!(shown, ["SYS within a socket", "SYS"]);
    }

    #[test]
    fn a_socket_that_is_not_known_is_no_common_socket() {
        let lines = machine("dgx-h100").unwrap().lines();
        let without = lines.filter(|line| !line.contains("physical_package_id"));
        let topology = topology(&without.collect::<Vec<_>>().join("\n"));
        assert!(topology.to_spec().shape.sockets.is_empty());
        let gpu = topology.gpus()[0].address;
        let nics = topology.nics().iter().map(|nic| nic.address);
        let far: Vec<_> = nics.filter(|nic| topology.path(gpu, *nic) == PathKind::Sys).collect();
        assert!(!far.is_empty());
        for nic in far {
            let reach = Reach::new(&topology, &Pair { gpu, nic, path: PathKind::Sys });
            assert_eq!(reach.to_string(), "SYS");
        }
    }
}
