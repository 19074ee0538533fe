//! How near the devices of a plan are to each other: the levels of the topology and,
//! nearer than any level, the GPU-NIC pairs of the topology.

use cluster_model::machines::Machine;
use std::collections::BTreeSet;
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
    /// All values, nearest first. On machines whose sockets have one NUMA node each, the last adds
    /// nothing; see [`Nearness::levels`].
    const ALL: [Self; 6] = [
        Self::Partner,
        Self::Level(Level::Switch),
        Self::Level(Level::RootPort),
        Self::Level(Level::Root),
        Self::Level(Level::Numa),
        Self::Level(Level::Socket),
    ];

    /// The values that differ on some of these machines, nearest first.
    pub(crate) fn levels(machines: &[Machine<'_>]) -> impl Iterator<Item = Self> + use<> {
        let weakest = Self::weakest(machines);
        Self::ALL.into_iter().filter(move |level| *level <= weakest)
    }

    /// The farthest level that still counts as near: a NUMA node, or a socket if some socket has
    /// several of them.
    pub(crate) fn weakest(machines: &[Machine<'_>]) -> Self {
        let is_socket = machines.iter().any(|machine| {
            let [of_sockets, of_nodes] = [Level::Socket, Level::Numa].map(|level| {
                let cells = machine.cells(level).into_iter();
                cells.map(|cell| (cell.gpus, cell.nics)).collect::<BTreeSet<_>>()
            });
            of_sockets != of_nodes
        });
        Self::Level(if is_socket { Level::Socket } else { Level::Numa })
    }

    /// Groups of devices that are this near to each other.
    pub(crate) fn cells(self, machine: &Machine<'_>) -> Vec<Cell> {
        match self {
            // If GPUs share NICs by design, pairs would leave some of them without a NIC. A GPU that
            // lost its NIC leaves the pairs of the others as they are.
            Self::Partner => {
                let pairs = machine.partners();
                let leaves_gpus = pairs.len() < machine.devices.gpus.len();
                let are_own = pairs.iter().all(|pair| pair.gpus.len() == 1);
                if leaves_gpus && !(are_own && machine.has_nearer_partners()) {
                    return Vec::new();
                }
                pairs
            }
            Self::Level(level) => machine.cells(level),
        }
    }

    /// What the devices of a cell have in common, in user-facing words.
    pub fn place(self) -> &'static str {
        match self {
            Self::Partner => "pair of GPU and NICs",
            Self::Level(Level::Switch) => "PCIe switch",
            Self::Level(Level::RootPort) => "PCIe root port",
            Self::Level(Level::Root) => "PCIe root",
            Self::Level(Level::Numa) => "NUMA node",
            Self::Level(Level::Socket) => "CPU socket",
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
