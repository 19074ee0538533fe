//! What a pod gets on a node.

use std::cmp::Ordering;
use topology_graph::PathKind;

/// What a pod gets on a node. Smaller is better: first the alternatives, then the path,
/// then degraded NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gets {
    /// The sum of the indices of the chosen alternatives in `firstAvailable`; 0 if each
    /// is the first. Equally good alternatives count the same.
    pub alternative: u32,
    /// The farthest path among the GPU-NIC pairs that the pod gets; `None` if it gets no
    /// GPU or no NIC.
    pub path: Option<PathKind>,
    /// NICs whose PCIe link runs below its capability, or whose port is down.
    pub degraded: u32,
}

impl Gets {
    fn order(&self) -> (u32, Option<PathKind>, u32) {
        (self.alternative, self.path, self.degraded)
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
