//! The partition of a machine's GPUs and NICs that claims are built on.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::graph::{Place, Role, Vertex, root_port_of};
use crate::text::serde_as_text;
use crate::{PciAddress, Topology};

/// How near the devices of one cell are: one level for each word of `nvidia-smi topo -m`
/// that is about PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Below one PCIe switch: PIX. A root port is no switch.
    Switch,
    /// Below one root port, over as many switches as there are: PXB or nearer. Data
    /// between such devices need not pass the CPU.
    RootPort,
    /// Below one host bridge, which is the standard attribute `pcieRoot`: PHB or nearer.
    Root,
    /// On one NUMA node: NODE or nearer.
    Numa,
}

/// Devices that are near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What they share: `numa0`, `pci0000:15`, the address of a root port or of a switch's
    /// upstream port.
    pub key: String,
    /// Its GPUs by address.
    pub gpus: Vec<PciAddress>,
    /// Its NICs by address.
    pub nics: Vec<PciAddress>,
}

/// A text that is no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid alignment `{0}`; allowed values: `switch`, `root-port`, `root`, `numa`")]
pub struct ParseLevelError(String);

impl Level {
    /// All levels, near to far.
    pub const ALL: [Self; 4] = [Self::Switch, Self::RootPort, Self::Root, Self::Numa];
}

impl Topology {
    /// The cells of a level, ordered by what their devices share. A device whose
    /// cell is unknown is in none; a cell may have GPUs only, or NICs only.
    pub fn cells(&self, level: Level) -> Vec<Cell> {
        let mut cells: BTreeMap<Place, Cell> = BTreeMap::new();
        for (address, vertex) in self.ends() {
            let Some(key) = self.cell_key(level, address) else { continue };
            let cell = cells.entry(key).or_insert_with(|| Cell {
                key: key.to_string(),
                gpus: Vec::new(),
                nics: Vec::new(),
            });
            match vertex.role {
                Role::Gpu => cell.gpus.push(address),
                _ => cell.nics.push(address),
            }
        }
        cells.into_values().collect()
    }

    /// A NIC is where its data path is, since that is what GPUs are near to.
    fn cell_key(&self, level: Level, device: PciAddress) -> Option<Place> {
        let device = Place::Function(device);
        let chain = self.graph.data_chain(device);
        let switch = |vertex: &&Vertex| self.graph.switch_above(vertex.place);
        match level {
            Level::Switch => chain.first().and_then(switch).map(|vertex| vertex.place),
            Level::RootPort => root_port_of(&chain).map(|vertex| vertex.place),
            Level::Root => match chain.as_slice() {
                [_, .., top] => Some(top.place),
                _ => None,
            },
            Level::Numa => self.graph.vertex(device)?.numa.map(Place::Numa),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Switch => "switch",
            Self::RootPort => "root-port",
            Self::Root => "root",
            Self::Numa => "numa",
        })
    }
}

impl FromStr for Level {
    type Err = ParseLevelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let level = Self::ALL.into_iter().find(|level| level.to_string() == text);
        level.ok_or_else(|| ParseLevelError(text.to_owned()))
    }
}

serde_as_text!(Level);
