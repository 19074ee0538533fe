//! The partition of a machine's GPUs and NICs that claims are built on.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::graph::switch_of;
use crate::shape::{Place, Role};
use crate::text::serde_as_text;
use crate::{NumaNode, PciAddress, Topology};

/// How near the devices of one cell are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Below one PCIe switch.
    Switch,
    /// Below one host bridge.
    Root,
    /// On one NUMA node.
    Numa,
}

/// Devices that are near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What they share: `numa0`, `pci0000:15`, the address of a switch's port.
    pub key: String,
    /// Its GPUs by address.
    pub gpus: Vec<PciAddress>,
    /// Its NICs by address.
    pub nics: Vec<PciAddress>,
}

/// A text that is no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no alignment (`switch`, `root`, `numa`)")]
pub struct ParseLevelError(String);

/// What the devices of a cell share, in the order in which cells are listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Place(Place),
    Numa(NumaNode),
}

impl Level {
    /// All levels, near to far.
    pub const ALL: [Self; 3] = [Self::Switch, Self::Root, Self::Numa];
}

impl Topology {
    /// The cells of a level, ordered by what their devices share. A device whose
    /// cell is unknown is in none; a cell may have GPUs only, or NICs only.
    pub fn cells(&self, level: Level) -> Vec<Cell> {
        let mut cells: BTreeMap<Key, Cell> = BTreeMap::new();
        for (address, vertex) in self.shape.devices() {
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
    fn cell_key(&self, level: Level, device: PciAddress) -> Option<Key> {
        let chain = self.graph.data_chain(Place::Function(device));
        match level {
            Level::Switch => switch_of(&chain).map(|vertex| Key::Place(vertex.place)),
            Level::Root => match chain.as_slice() {
                [_, .., top] => Some(Key::Place(top.place)),
                _ => None,
            },
            Level::Numa => self.chain(device).first()?.numa.map(Key::Numa),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(place) => place.fmt(f),
            Self::Numa(node) => write!(f, "numa{node}"),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Switch => "switch",
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
