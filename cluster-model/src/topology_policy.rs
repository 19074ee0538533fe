//! The policy of a kubelet's topology manager, which decides on which NUMA nodes a pod gets the GPUs of a
//! device plugin.
//!
//! Follows Kubernetes 1.37.1: `pkg/kubelet/cm/topologymanager`. Other resources of the pod are not known
//! here, so the GPUs alone decide.

pub mod hints;

use hints::{DevicesByNode, merge};
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
}

/// The GPUs of a node's device plugin as the kubelet tells them apart.
#[derive(Clone, Debug)]
pub struct GpuGroups {
    policy: TopologyPolicy,
    /// Those of each NUMA node, or all together if the kubelet has no preference.
    groups: Vec<BTreeSet<PciAddress>>,
}

impl GpuGroups {
    /// All GPUs of a device plugin. The kubelet has no preference if the device plugin names no NUMA
    /// nodes.
    pub fn new(policy: TopologyPolicy, topology: &Topology, gpus: &BTreeSet<PciAddress>) -> Self {
        let numa: Option<Vec<(NumaNode, PciAddress)>> =
            gpus.iter().map(|gpu| Some((numa(topology, *gpu)?, *gpu))).collect();
        let mut groups: BTreeMap<NumaNode, BTreeSet<PciAddress>> = BTreeMap::new();
        for (node, gpu) in numa.into_iter().flatten().filter(|_| policy != TopologyPolicy::None) {
            groups.entry(node).or_default().insert(gpu);
        }
        if groups.is_empty() || groups.len() > NUMA_NODES_MAX {
            return Self { policy: TopologyPolicy::None, groups: vec![gpus.clone()] };
        }
        Self { policy, groups: groups.into_values().collect() }
    }

    /// The groups.
    pub fn all(&self) -> &[BTreeSet<PciAddress>] {
        &self.groups
    }

    /// The groups of which a pod gets `count` GPUs, by number, if so many of each are free; `None` if the
    /// kubelet refuses the pod.
    pub fn chosen(&self, free: &[usize], count: usize) -> Option<Vec<usize>> {
        let all = self.groups.iter().map(BTreeSet::len).collect();
        let hint = merge(&[DevicesByNode { all, free: free.to_vec() }], count)?;
        let is_accepted = match self.policy {
            TopologyPolicy::None | TopologyPolicy::BestEffort => true,
            TopologyPolicy::Restricted => hint.is_preferred,
            TopologyPolicy::SingleNumaNode => hint.width() == 1,
        };
        let groups = (0..self.groups.len()).filter(|group| hint.nodes >> group & 1 == 1);
        is_accepted.then(|| groups.collect())
    }

    /// How many of these GPUs each group has.
    pub fn count(&self, gpus: &BTreeSet<PciAddress>) -> Vec<usize> {
        self.groups.iter().map(|group| group.intersection(gpus).count()).collect()
    }

    /// The free GPUs among which a pod gets `count`, if the kubelet accepts it: those of the NUMA nodes
    /// that the kubelet chooses.
    pub fn candidates(
        &self,
        free: &BTreeSet<PciAddress>,
        count: usize,
    ) -> Option<BTreeSet<PciAddress>> {
        Some(self.of_groups(&self.chosen(&self.count(free), count)?, free))
    }

    /// Those of these GPUs that are in some groups.
    pub fn of_groups(
        &self,
        numbers: &[usize],
        gpus: &BTreeSet<PciAddress>,
    ) -> BTreeSet<PciAddress> {
        let groups = numbers.iter().filter_map(|number| self.groups.get(*number));
        groups.flat_map(|group| group.intersection(gpus)).copied().collect()
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
