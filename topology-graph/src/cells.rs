//! Cells: the partition of a machine's GPUs and NICs that claims use.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::graph::{Place, Role, Vertex, root_port_of};
use crate::text::serde_as_text;
use crate::{PciAddress, Topology};

/// How near the devices of a cell are: one level per PCIe path kind of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Below one PCIe switch: PIX. A root port is not a switch.
    Switch,
    /// Below one root port, with any number of switches: PXB or nearer. Data between such devices
    /// need not pass the CPU.
    RootPort,
    /// Below one host bridge, which is the standard attribute `pcieRoot`: PHB or nearer.
    Root,
    /// On one NUMA node: NODE or nearer.
    Numa,
}

/// A group of devices that are near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The common place of the devices: `numa0`, `pci0000:15`, or the address of a root port or of
    /// a switch's upstream port.
    pub key: String,
    /// Its GPUs, by address.
    pub gpus: Vec<PciAddress>,
    /// Its NICs, by address.
    pub nics: Vec<PciAddress>,
}

/// A text is not an alignment level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid alignment `{0}`; allowed values: `switch`, `root-port`, `root`, `numa`")]
pub struct ParseLevelError(String);

impl Level {
    /// All levels, from near to far.
    pub const ALL: [Self; 4] = [Self::Switch, Self::RootPort, Self::Root, Self::Numa];
}

impl Topology {
    /// The cells of a level, ordered by place. A device whose place is unknown is in no cell. A
    /// cell may have only GPUs or only NICs.
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

    /// The cell of a device. For a NIC it is the cell of its data path, since GPUs are near to
    /// that.
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
