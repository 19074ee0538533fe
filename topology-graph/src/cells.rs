//! Cells: the partition of a machine's GPUs and NICs that claims use.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Place, Role, root_port_of};
use crate::text::{serde_as_text, words};
use crate::{NicRole, NumaNode, PciAddress, Topology};

/// How near the devices of a cell are: one level per PCIe path kind of `nvidia-smi topo -m`, and the
/// socket, for which it has no word: it says SYS between NUMA nodes of one socket.
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
    /// On one CPU socket: SYS, but without the link between sockets. Differs from [`Level::Numa`] only
    /// if a socket has several NUMA nodes (NPS, SNC).
    Socket,
}

/// A group of devices that are near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The common place of the devices: `socket0`, `numa0`, `pci0000:15`, or the address of a root port or of
    /// a switch's upstream port; `pci0000:00/numa0` if a root bus has devices of several NUMA nodes.
    pub key: String,
    /// Its GPUs, by address.
    pub gpus: Vec<PciAddress>,
    /// Its NICs, by address.
    pub nics: Vec<PciAddress>,
    /// The physical function of each NIC that is a virtual one.
    pub physical: BTreeMap<PciAddress, PciAddress>,
}

impl Cell {
    /// The number of ports of its NICs. All functions of a port share its link.
    pub fn ports(&self) -> usize {
        let ports = self.nics.iter().map(|nic| self.physical.get(nic).unwrap_or(nic));
        ports.collect::<BTreeSet<_>>().len()
    }
}

impl Level {
    /// The levels for which `nvidia-smi topo -m` has a word, from near to far.
    pub const WITH_WORDS: [Self; 4] = [Self::Switch, Self::RootPort, Self::Root, Self::Numa];
}

impl Topology {
    /// The cells of a level with GPUs and compute NICs, ordered by place. A device whose place is
    /// unknown is in no cell. A cell may have only GPUs or only NICs.
    pub fn cells(&self, level: Level) -> Vec<Cell> {
        let mut cells = self.cells_of_all(level);
        for cell in &mut cells {
            cell.nics.retain(|nic| self.nic_role(*nic) == Some(NicRole::Compute));
        }
        cells.retain(|cell| !cell.gpus.is_empty() || !cell.nics.is_empty());
        cells
    }

    /// The same with NICs of every role.
    pub fn cells_of_all(&self, level: Level) -> Vec<Cell> {
        let mut cells: BTreeMap<(Place, Option<NumaNode>), Cell> = BTreeMap::new();
        let divided = if level == Level::Root { self.divided_roots() } else { BTreeSet::new() };
        for (address, vertex) in self.ends() {
            let Some(place) = self.cell_key(level, address) else { continue };
            let numa = vertex.numa.filter(|_| divided.contains(&place));
            let cell = cells.entry((place, numa)).or_insert_with(|| Cell {
                key: numa.map_or_else(|| place.to_string(), |numa| format!("{place}/numa{numa}")),
                gpus: Vec::new(),
                nics: Vec::new(),
                physical: BTreeMap::new(),
            });
            if vertex.role == Role::Gpu {
                cell.gpus.push(address);
            } else {
                cell.nics.push(address);
                cell.physical.extend(self.physical_function(address).map(|it| (address, it)));
            }
        }
        cells.into_values().collect()
    }

    /// Those of these GPUs near which the machine has compute NICs, but none of these NICs.
    pub fn stranded(
        &self,
        level: Level,
        gpus: &BTreeSet<PciAddress>,
        nics: &BTreeSet<PciAddress>,
    ) -> BTreeSet<PciAddress> {
        let cells = self.cells(level).into_iter().filter(|cell| !cell.nics.is_empty());
        let lost = cells.filter(|cell| !cell.nics.iter().any(|nic| nics.contains(nic)));
        lost.flat_map(|cell| cell.gpus).filter(|gpu| gpus.contains(gpu)).collect()
    }

    /// The port of a NIC: its physical function, if it is a virtual one whose physical function the
    /// machine has, otherwise the NIC itself.
    pub fn port_of(&self, nic: PciAddress) -> PciAddress {
        self.physical_function(nic).unwrap_or(nic)
    }

    /// The first function of each port among these NICs: the functions of a port share its link, so a pod
    /// gets one of them.
    pub fn one_of_each_port(
        &self,
        nics: impl IntoIterator<Item = PciAddress>,
    ) -> impl Iterator<Item = PciAddress> {
        let mut ports = BTreeSet::new();
        nics.into_iter().filter(move |nic| ports.insert(self.port_of(*nic)))
    }

    /// The physical function of a virtual one, if the machine has both.
    pub fn physical_function(&self, nic: PciAddress) -> Option<PciAddress> {
        match self.graph.vertex(Place::Function(nic))?.physical_function? {
            Place::Function(address) => Some(address),
            _ => None,
        }
    }

    /// The root buses with devices on different NUMA nodes, as hypervisors make them. Their cells are
    /// divided by NUMA node.
    fn divided_roots(&self) -> BTreeSet<Place> {
        let mut nodes: BTreeMap<Place, BTreeSet<NumaNode>> = BTreeMap::new();
        for (address, vertex) in self.ends() {
            if let Some(place) = self.cell_key(Level::Root, address) {
                nodes.entry(place).or_default().extend(vertex.numa);
            }
        }
        nodes.into_iter().filter(|(_, nodes)| nodes.len() > 1).map(|(place, _)| place).collect()
    }

    /// The cell of a device. For a NIC it is the cell of its data path, since GPUs are near to
    /// that.
    fn cell_key(&self, level: Level, device: PciAddress) -> Option<Place> {
        let device = Place::Function(device);
        let chain = self.graph.data_chain(device);
        match level {
            Level::Switch => chain
                .first()
                .and_then(|vertex| self.graph.switch_above(vertex.place))
                .map(|vertex| vertex.place),
            Level::RootPort => root_port_of(&chain).map(|vertex| vertex.place),
            Level::Root => match chain.as_slice() {
                [_, .., top] => Some(top.place),
                _ => None,
            },
            Level::Numa => self.graph.vertex(device)?.numa.map(Place::Numa),
            // Without a known socket, a NUMA node is alone.
            Level::Socket => {
                let node = self.graph.vertex(device)?.numa?;
                let socket = self.graph.socket_of(node).map(Place::Socket);
                Some(socket.unwrap_or(Place::Numa(node)))
            }
        }
    }
}

words! {
    Level, ParseLevelError("alignment"):
    Switch = "switch", RootPort = "root-port", Root = "root", Numa = "numa", Socket = "socket"
}

serde_as_text!(Level);
