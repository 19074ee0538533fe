//! The policy of a kubelet's topology manager, which decides on which NUMA nodes a pod gets the GPUs of a
//! device plugin.
//!
//! Follows Kubernetes 1.37.1: `pkg/kubelet/cm/topologymanager` (`HintMerger`, the policies) and
//! `pkg/kubelet/cm/devicemanager/topology_hints.go`. Other resources of the pod are not known here, so
//! the GPUs alone decide.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use topology_graph::{NumaNode, PciAddress, Topology};

/// The most NUMA nodes with which the kubelet's topology manager works (`defaultMaxAllowableNUMANodes`).
const NUMA_NODES_MAX: usize = 8;

/// The policy of a kubelet's topology manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopologyPolicy {
    /// Any free GPUs; the kubelet's default.
    #[default]
    None,
    /// GPUs of as few NUMA nodes as possible.
    BestEffort,
    /// The same, and the kubelet refuses a pod that needs more NUMA nodes than on an empty node.
    Restricted,
    /// GPUs of one NUMA node; the kubelet refuses other pods.
    SingleNumaNode,
}

/// A text is not the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid topologyManagerPolicy `{0}`; allowed values: `none`, `best-effort`, `restricted`, `single-numa-node`"
)]
pub struct ParseTopologyPolicyError(String);

/// The configuration of a kubelet does not say its policy.
#[derive(Debug, thiserror::Error)]
pub enum KubeletConfigError {
    /// It is no YAML or JSON.
    #[error("failed to parse the kubelet's configuration")]
    Syntax(#[from] serde_saphyr::Error),
    /// The policy is not known.
    #[error(transparent)]
    Policy(#[from] ParseTopologyPolicyError),
}

/// The fields of a `KubeletConfiguration` that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeletConfig {
    topology_manager_policy: Option<String>,
}

impl TopologyPolicy {
    const ALL: [Self; 4] = [Self::None, Self::BestEffort, Self::Restricted, Self::SingleNumaNode];

    /// Reads the policy from a `KubeletConfiguration` in YAML or JSON.
    ///
    /// # Errors
    /// It is neither, or names an unknown policy.
    pub fn of_config(text: &str) -> Result<Self, KubeletConfigError> {
        let config = serde_saphyr::from_str::<Option<KubeletConfig>>(text)?.unwrap_or_default();
        match config.topology_manager_policy.as_deref() {
            None | Some("") => Ok(Self::None),
            Some(policy) => Ok(policy.parse()?),
        }
    }

    /// The free GPUs among which a pod gets `count`, if the kubelet accepts it: all, or those of the NUMA
    /// nodes that the kubelet chooses. `gpus` are those of the device plugin.
    pub fn candidates(
        self,
        topology: &Topology,
        gpus: &BTreeSet<PciAddress>,
        free: &BTreeSet<PciAddress>,
        count: usize,
    ) -> Option<BTreeSet<PciAddress>> {
        if free.len() < count {
            return None;
        }
        let numa: Option<BTreeMap<PciAddress, NumaNode>> =
            gpus.iter().map(|gpu| Some((*gpu, numa(topology, *gpu)?))).collect();
        // The kubelet has no preference if the device plugin names no NUMA nodes.
        let Some(numa) = numa.filter(|_| self != Self::None) else { return Some(free.clone()) };
        let nodes: Vec<NumaNode> =
            numa.values().copied().collect::<BTreeSet<_>>().into_iter().collect();
        if nodes.len() > NUMA_NODES_MAX {
            return Some(free.clone());
        }
        // In the order in which the kubelet prefers them: the narrowest, then the lowest.
        let mut sets: Vec<u32> = (1..1_u32 << nodes.len()).collect();
        sets.sort_by_key(|set| (set.count_ones(), *set));
        let are_in = |set: u32, gpu: &PciAddress| {
            let node = nodes.iter().position(|node| numa.get(gpu) == Some(node));
            node.is_some_and(|node| set >> node & 1 == 1)
        };
        let has = |among: &BTreeSet<PciAddress>, set: u32| {
            among.iter().filter(|gpu| are_in(set, gpu)).count() >= count
        };
        let narrowest = sets.iter().find(|set| has(gpus, **set))?.count_ones();
        let chosen = *sets.iter().find(|set| has(free, **set))?;
        let width = chosen.count_ones();
        let is_accepted = match self {
            Self::None | Self::BestEffort => true,
            Self::Restricted => width == narrowest,
            Self::SingleNumaNode => width == 1,
        };
        is_accepted.then(|| free.iter().filter(|gpu| are_in(chosen, gpu)).copied().collect())
    }
}

fn numa(topology: &Topology, gpu: PciAddress) -> Option<NumaNode> {
    topology.gpus().iter().find(|known| known.address == gpu)?.numa
}

impl fmt::Display for TopologyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        })
    }
}

impl FromStr for TopologyPolicy {
    type Err = ParseTopologyPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.to_string() == text);
        found.ok_or_else(|| ParseTopologyPolicyError(text.to_owned()))
    }
}
