//! How near the devices of a plan are to each other: the levels of the topology and,
//! nearer than any level, the GPU-NIC pairs of the topology.

use cluster_model::machines::Machine;
use std::fmt;
use topology_graph::{Cell, Level};

/// The nearness that a plan guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nearness {
    /// Each GPU with the NICs that the topology pairs it with.
    Partner,
    /// Devices in the same cell of this level.
    Level(Level),
}

impl Nearness {
    /// All values, nearest first.
    pub(crate) const ALL: [Self; 5] = [
        Self::Partner,
        Self::Level(Level::Switch),
        Self::Level(Level::RootPort),
        Self::Level(Level::Root),
        Self::Level(Level::Numa),
    ];

    /// Groups of devices that are this near to each other.
    pub(crate) fn cells(self, machine: &Machine<'_>) -> Vec<Cell> {
        match self {
            // If there are fewer NICs than GPUs, pairs would leave some GPUs without a
            // NIC.
            Self::Partner => {
                let pairs = machine.partners();
                if pairs.len() < machine.devices.gpus.len() { Vec::new() } else { pairs }
            }
            Self::Level(level) => machine.cells(level),
        }
    }

    /// What the devices of a cell have in common, in user-facing words.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Self::Partner => "pair of GPU and NICs",
            Self::Level(Level::Switch) => "PCIe switch",
            Self::Level(Level::RootPort) => "PCIe root port",
            Self::Level(Level::Root) => "PCIe root",
            Self::Level(Level::Numa) => "NUMA node",
        }
    }
}

impl fmt::Display for Nearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partner => f.pad("partner"),
            Self::Level(level) => level.fmt(f),
        }
    }
}
