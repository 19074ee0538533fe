//! Whether containers need a topology file. NCCL and RCCL read sysfs in the container too, so a file
//! helps only where it has more than that, and it must not displace a better one.

use std::collections::BTreeSet;

use crate::vendor::is_efa;
use crate::{Evidence, NumaNode, Topology};

/// Why containers get a topology file for NCCL by default, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclFileNeed {
    /// aws-ofi-nccl has a file with the speed of all rails of a GPU, but not if the variable is set.
    Efa,
    /// The machine has a file, which containers do not see.
    OwnFile,
    /// Sysfs does not show the switches or NUMA nodes of some devices, and the graph has them.
    Hidden,
    /// The file would have what NCCL and RCCL find by themselves.
    Nothing,
}

impl NcclFileNeed {
    /// Decides for a machine.
    pub fn of(topology: &Topology) -> Self {
        if topology.nics().iter().any(|nic| is_efa((nic.vendor, nic.device))) {
            Self::Efa
        } else if topology.nccl_file.is_some() {
            Self::OwnFile
        } else if has_hidden_switches(topology) || has_hidden_numa_nodes(topology) {
            Self::Hidden
        } else {
            Self::Nothing
        }
    }

    /// Returns true if containers get a file.
    pub fn is_file_given(self) -> bool {
        matches!(self, Self::OwnFile | Self::Hidden)
    }
}

fn has_hidden_switches(topology: &Topology) -> bool {
    topology.ends().any(|(_, device)| {
        let chain = topology.graph.chain(device.place);
        chain.iter().any(|vertex| vertex.evidence != Evidence::Sysfs)
    })
}

/// Returns true if devices share other NUMA nodes than sysfs shows.
fn has_hidden_numa_nodes(topology: &Topology) -> bool {
    let nodes = topology.ends().map(|(_, device)| {
        let shown = device.numa.filter(|_| device.numa_evidence == Evidence::Sysfs);
        (shown, device.numa)
    });
    let nodes: BTreeSet<(Option<NumaNode>, Option<NumaNode>)> = nodes.collect();
    let shown: BTreeSet<_> = nodes.iter().map(|(shown, _)| shown).collect();
    let known: BTreeSet<_> = nodes.iter().map(|(_, known)| known).collect();
    nodes.len() > shown.len() || nodes.len() > known.len()
}
