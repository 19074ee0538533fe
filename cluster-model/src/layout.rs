//! The part of a machine's graph that claims depend on: which devices are in which cells, which
//! are paired, and how near they are. Graphs with the same layout are equal for every plan,
//! whatever else differs between them: evidence, NVLink, CPU lists, the version of node-driver.
//!
//! A lost device changes the shape of a graph, but not the cells of the devices that are left: such
//! a layout is a *condition* of the complete one.

use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{Cell, Level, LinkLayer, PathKind, PciAddress, Topology};

/// The layout of a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout {
    /// The cells of each level, nearest level first, as GPUs and NICs.
    cells: Vec<BTreeSet<(Vec<PciAddress>, Vec<PciAddress>)>>,
    /// Paired GPUs and NICs.
    pairs: BTreeSet<(PciAddress, PciAddress)>,
    /// The path between each GPU and NIC.
    paths: BTreeMap<(PciAddress, PciAddress), PathKind>,
    /// The port of each NIC.
    ports: BTreeMap<PciAddress, PciAddress>,
    /// The link layer of each NIC.
    links: BTreeMap<PciAddress, Option<LinkLayer>>,
}

impl Layout {
    /// The layout of a graph.
    pub fn new(topology: &Topology) -> Self {
        let (gpus, nics) = (topology.gpus(), topology.nics());
        let both = gpus.iter().flat_map(|gpu| nics.iter().map(|nic| (gpu.address, nic.address)));
        Self {
            cells: Level::ALL.into_iter().map(|level| sets(topology.cells_of_all(level))).collect(),
            pairs: topology.pairs().iter().map(|pair| (pair.gpu, pair.nic)).collect(),
            paths: both.map(|(gpu, nic)| ((gpu, nic), topology.path(gpu, nic))).collect(),
            ports: nics.iter().map(|nic| (nic.address, topology.port_of(nic.address))).collect(),
            links: nics.iter().map(|nic| (nic.address, nic.link_layer)).collect(),
        }
    }

    /// Returns true if this is the other layout, or the other one without some devices: at each
    /// level, devices are in one cell here exactly if they are in one cell there.
    pub fn is_condition_of(&self, other: &Self) -> bool {
        self.cells.iter().zip(&other.cells).all(|(here, there)| {
            let homes: Vec<_> = here.iter().map(|cell| home(cell, there)).collect();
            let found: BTreeSet<_> = homes.iter().flatten().collect();
            found.len() == homes.len()
        })
    }
}

/// The index of the cell that has all devices of this one.
fn home(
    (gpus, nics): &(Vec<PciAddress>, Vec<PciAddress>),
    there: &BTreeSet<(Vec<PciAddress>, Vec<PciAddress>)>,
) -> Option<usize> {
    there.iter().position(|(all_gpus, all_nics)| {
        gpus.iter().all(|gpu| all_gpus.contains(gpu))
            && nics.iter().all(|nic| all_nics.contains(nic))
    })
}

fn sets(cells: Vec<Cell>) -> BTreeSet<(Vec<PciAddress>, Vec<PciAddress>)> {
    let cells = cells.into_iter().filter(|cell| !cell.gpus.is_empty() || !cell.nics.is_empty());
    cells
        .map(|Cell { mut gpus, mut nics, .. }| {
            gpus.sort_unstable();
            nics.sort_unstable();
            (gpus, nics)
        })
        .collect()
}
