//! What running pods got.

use crate::doctor::gpu_direct::remedy;
use cluster_model::view::ObjectKey;
use serde_json::{Value, json};
use topology_graph::{Gdr, PathKind, PciAddress};

/// A pod with GPUs and NICs.
pub(super) struct Verified {
    pub(super) pod: String,
    pub(super) node: String,
    pub(super) pairs: Vec<NamedPair>,
    /// The farthest path that the pod's annotations allow; `None` if they guarantee
    /// nothing.
    pub(super) promised: Option<PathKind>,
    /// The farthest path that the same claims would get on the same node if nothing were
    /// in use; `None` if unknown.
    pub(super) possible: Option<PathKind>,
    /// Degradations of its NICs.
    pub(super) degraded: Vec<String>,
    pub(super) claims: Vec<ObjectKey>,
}

/// A GPU and a NIC of a pod.
pub(super) struct NamedPair {
    pub(super) gpu: String,
    pub(super) nic: String,
    pub(super) gpu_address: PciAddress,
    pub(super) nic_address: PciAddress,
    pub(super) path: PathKind,
    /// Present if requested.
    pub(super) gpu_direct: Option<GpuDirect>,
}

impl Verified {
    /// The pod's name without the namespace.
    pub(super) fn name(&self) -> &str {
        self.pod.split_once('/').map_or(&self.pod, |(_, name)| name)
    }

    /// The farthest path of its pairs.
    pub(super) fn farthest(&self) -> Option<PathKind> {
        self.pairs.iter().map(|pair| pair.path).max()
    }

    /// Whether GPUDirect is blocked for a pair, if that was checked.
    pub(super) fn is_blocked(&self) -> bool {
        self.pairs.iter().flat_map(|pair| &pair.gpu_direct).any(GpuDirect::is_blocked)
    }

    pub(super) fn is_worse(&self) -> bool {
        !self.farthest().is_none_or(|path| self.promised.is_none_or(|most| path.satisfies(most)))
    }
}

/// The result for one pair.
pub(super) struct GpuDirect {
    pub(super) verdict: Gdr,
    /// The facts behind the verdict.
    pub(super) evidence: String,
}

impl GpuDirect {
    /// Whether something blocks it.
    pub(super) fn is_blocked(&self) -> bool {
        remedy(self.verdict).is_some()
    }

    pub(super) fn program(&self) -> Value {
        let (why, what_to_do) = remedy(self.verdict).unzip();
        json!({
            "verdict": self.verdict.to_string(),
            "evidence": self.evidence,
            "why": why,
            "whatToDo": what_to_do,
        })
    }
}
