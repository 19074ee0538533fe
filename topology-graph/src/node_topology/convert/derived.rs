//! What follows from the graph, for programs that read the object without this crate.

use std::collections::BTreeMap;

use super::super::{CellSpec, PairSpec, PathSpec};
use super::count;
use crate::graph::Place;
use crate::{Level, PathKind, PciAddress, Topology};

pub(super) fn pairs(topology: &Topology) -> Vec<PairSpec> {
    let numbers = Numbers::new(topology);
    let mut pairs: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pair in topology.pairs() {
        let numbered = numbers.gpus.get(&pair.gpu).zip(numbers.nics.get(&pair.nic));
        if let Some((gpu, nic)) = numbered {
            pairs.entry(*gpu).or_default().push(*nic);
        }
    }
    pairs.into_iter().map(|(gpu, nics)| PairSpec { gpu, nics }).collect()
}

pub(super) fn cells(topology: &Topology) -> Vec<CellSpec> {
    let numbers = Numbers::new(topology);
    let levels = Level::ALL.into_iter();
    let cells = levels.flat_map(|level| topology.cells(level).into_iter().map(move |c| (level, c)));
    cells
        .map(|(level, cell)| CellSpec {
            level: level.to_string(),
            key: cell.key,
            gpus: cell.gpus.iter().filter_map(|gpu| numbers.gpus.get(gpu)).copied().collect(),
            nics: cell.nics.iter().filter_map(|nic| numbers.nics.get(nic)).copied().collect(),
        })
        .collect()
}

pub(super) fn paths(topology: &Topology) -> Vec<PathSpec> {
    let numbers = Numbers::new(topology);
    let mut paths: BTreeMap<(u32, PathKind), Vec<u32>> = BTreeMap::new();
    for (gpu, number) in &numbers.gpus {
        for (nic, nic_number) in &numbers.nics {
            let path = topology.path(*gpu, *nic);
            paths.entry((*number, path)).or_default().push(*nic_number);
        }
    }
    paths
        .into_iter()
        .map(|((gpu, path), nics)| PathSpec { gpu, path: path.to_string(), nics })
        .collect()
}

/// The numbers of GPUs and of NICs that are physical functions.
struct Numbers {
    gpus: BTreeMap<PciAddress, u32>,
    nics: BTreeMap<PciAddress, u32>,
}

impl Numbers {
    fn new(topology: &Topology) -> Self {
        let gpus = topology.gpus().iter().enumerate();
        let nics = topology.nics().iter().enumerate();
        Self {
            gpus: gpus.map(|(index, gpu)| (gpu.address, count(index))).collect(),
            nics: nics
                .filter(|(_, nic)| {
                    let vertex = topology.graph.vertex(Place::Function(nic.address));
                    vertex.is_some_and(|vertex| vertex.physical_function.is_none())
                })
                .map(|(index, nic)| (nic.address, count(index)))
                .collect(),
        }
    }
}
