//! The cells that a pinned claim names.

use std::collections::BTreeMap;
use topology_graph::PciAddress;

/// What names the type of a machine, and the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MachineType {
    /// An attribute of its NICs.
    Attribute(&'static str, String),
    /// A label of its node, to which the pod is limited.
    NodeLabel(&'static str, String),
}

impl MachineType {
    /// The name of the type.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Attribute(_, name) | Self::NodeLabel(_, name) => name,
        }
    }
}

/// A cell on the nodes of one machine type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinnedCell {
    /// The cell's name in the topology.
    pub(crate) key: String,
    /// The machine type.
    pub(crate) machine: MachineType,
    /// The NIC attribute with the bus ID; `None` if the claim takes every NIC of the machine.
    pub(crate) address_attribute: Option<&'static str>,
    pub(crate) gpus: Vec<PciAddress>,
    pub(crate) nics: Vec<PciAddress>,
    /// The physical function of each NIC that is a virtual one.
    pub(crate) physical: BTreeMap<PciAddress, PciAddress>,
}
