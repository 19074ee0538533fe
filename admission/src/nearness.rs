//! How near the devices of a plan are: the levels of the graph, and nearer than
//! all of them the pairs that the graph itself makes.

use cluster_model::machines::Machine;
use std::fmt;
use topology_graph::{Cell, Level};

/// What a plan promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nearness {
    /// Each GPU with the NICs that the graph pairs it with.
    Partner,
    /// Devices of one cell of this level.
    Level(Level),
}

impl Nearness {
    /// All, near to far.
    pub(crate) const ALL: [Self; 5] = [
        Self::Partner,
        Self::Level(Level::Switch),
        Self::Level(Level::RootPort),
        Self::Level(Level::Root),
        Self::Level(Level::Numa),
    ];

    /// Devices that are this near to each other.
    pub(crate) fn cells(self, machine: &Machine<'_>) -> Vec<Cell> {
        match self {
            // Where NICs are fewer than GPUs, pairs would leave GPUs out of reach.
            Self::Partner => {
                let pairs = machine.partners();
                if pairs.len() < machine.devices.gpus.len() { Vec::new() } else { pairs }
            }
            Self::Level(level) => machine.cells(level),
        }
    }

    /// What the devices of a cell have in common, for a person.
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
