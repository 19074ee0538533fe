//! The demand as blocks of GPUs and NICs that belong together, and the names of the
//! requests for them.
//!
//! If each GPU has its own NICs and "near" means "in the same cell", blocks can be
//! merged: any GPU of a cell is near any NIC of it, so six pairs on cells of four are
//! equivalent to blocks of one, two and three pairs. Fewer blocks make the search much
//! shorter.

mod coarse;

use crate::alignment::Share;
use cluster_model::machines::Machine;
use std::ops::Range;
use topology_graph::Cell;

/// Largest number of blocks for which merging is tried: the GPUs of the largest machines.
/// The number of ways to spread more of them over cells grows too fast.
const TOGETHER_MAX: u32 = 8;

/// Blocks of equal size, some of them merged. A group is one block; if each GPU has its
/// own NICs, each GPU with its NICs is a block; if GPUs share NICs, each NIC with its GPUs is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Number of blocks.
    pub(crate) blocks: u32,
    /// GPUs per block.
    pub(crate) gpus: u32,
    /// NICs per block.
    pub(crate) nics: u32,
    /// How many blocks each request covers; they add up to `blocks`.
    sizes: Vec<u32>,
    /// The pod's GPUs in contiguous parts; each part is one request.
    parts: Vec<Range<u32>>,
}

/// Requests for the devices of one or more merged blocks.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Name and count of the request for NICs.
    pub(crate) nics: (String, u32),
    /// Names and counts of the requests for GPUs.
    pub(crate) gpus: Vec<(String, u32)>,
}

/// The part of the claim that a container may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The container.
    pub container: String,
    /// Names of the requests; `None` means the whole claim.
    pub requests: Option<Vec<String>>,
}

impl Demand {
    /// Blocks of this many GPUs and NICs, none of them merged. The parts are those of the pod's GPUs.
    pub(crate) fn new(blocks: u32, gpus: u32, nics: u32, parts: Vec<Range<u32>>) -> Self {
        Self { blocks, gpus, nics, sizes: vec![1; blocks as usize], parts }
    }

    /// Total number of GPUs.
    pub(crate) fn all_gpus(&self) -> u32 {
        self.blocks * self.gpus
    }

    /// Total number of NICs.
    pub(crate) fn all_nics(&self) -> u32 {
        self.blocks * self.nics
    }

    /// How many blocks each of [`Self::requests`] covers.
    pub(crate) fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// The requests of each block or merged group of blocks.
    pub(crate) fn requests(&self) -> Vec<Block> {
        if self.blocks > 1 {
            return self
                .sizes
                .iter()
                .enumerate()
                .map(|(i, size)| Block {
                    nics: (format!("nic-{i}"), size * self.nics),
                    gpus: vec![(format!("gpu-{i}"), size * self.gpus)],
                })
                .collect();
        }
        let gpus = self.parts.iter().enumerate();
        let gpus = gpus.map(|(i, part)| (self.part_name(i), part.end - part.start)).collect();
        vec![Block { nics: ("nics".to_owned(), self.nics), gpus }]
    }

    /// The same demand with merged blocks, for machines with these cells. `None` if
    /// nothing can be merged, or if containers have GPUs of their own.
    pub(crate) fn together(&self, shares: &[Share], machines: &[Vec<Cell>]) -> Option<Self> {
        if !self.is_in_common(shares) || !(3..=TOGETHER_MAX).contains(&self.blocks) {
            return None;
        }
        let machines: Vec<Vec<usize>> = machines
            .iter()
            .map(|cells| cells.iter().map(|cell| self.capacity(cell)).collect())
            .collect();
        let sizes = coarse::sizes(self.blocks, &machines)?;
        Some(self.in_sizes(&sizes))
    }

    /// The same demand with blocks merged to these sizes, which must add up to `blocks`.
    pub(crate) fn in_sizes(&self, sizes: &[u32]) -> Self {
        if self.blocks == 1 {
            return self.clone();
        }
        let cuts = sizes.iter().scan(0, |end, size| {
            let start = *end;
            *end += size * self.gpus;
            Some(start..*end)
        });
        Self { sizes: sizes.to_vec(), parts: cuts.collect(), ..self.clone() }
    }

    /// Every way to spread the blocks over cells with these capacities, as the number of
    /// blocks in each cell.
    pub(crate) fn spreads(&self, rooms: &[usize]) -> Vec<Vec<usize>> {
        coarse::splits(self.blocks as usize, rooms)
    }

    fn part_name(&self, part: usize) -> String {
        match (self.blocks, self.parts.len()) {
            (1, 1) => "gpus".to_owned(),
            (1, _) => format!("gpus-{part}"),
            _ => format!("gpu-{part}"),
        }
    }

    /// The same devices as plain counts in a single block. `None` if containers have GPUs
    /// of their own, because then the claim could not say which NICs belong to which
    /// container.
    pub(crate) fn as_counts(&self, shares: &[Share]) -> Option<Self> {
        let all = 0..self.all_gpus();
        self.is_in_common(shares).then(|| Self {
            blocks: 1,
            gpus: self.all_gpus(),
            nics: self.all_nics(),
            sizes: vec![1],
            parts: vec![all],
        })
    }

    /// Returns true if no container has a part of the GPUs.
    fn is_in_common(&self, shares: &[Share]) -> bool {
        let all = 0..self.all_gpus();
        shares.iter().all(|share| share.gpus == all || share.gpus.is_empty())
    }

    /// The part of the claim that each container may use.
    pub(crate) fn grants(&self, shares: &[Share]) -> Vec<Grant> {
        shares
            .iter()
            .map(|share| {
                let parts = self.parts.iter().enumerate().filter(|(_, part)| {
                    share.gpus.start <= part.start && part.end <= share.gpus.end
                });
                let parts: Vec<usize> = parts.map(|(index, _)| index).collect();
                let whole = parts.len() == self.parts.len();
                let requests = (!whole).then(|| self.names(&parts));
                Grant { container: share.container.clone(), requests }
            })
            .collect()
    }

    /// Request names of these parts. All parts get the NICs of a group; a GPU of a pair
    /// gets its own NICs; a container without GPUs gets all NICs.
    fn names(&self, parts: &[usize]) -> Vec<String> {
        let gpus = parts.iter().map(|part| self.part_name(*part));
        let nics: Vec<_> = self.requests().into_iter().map(|block| block.nics.0).collect();
        let nics = nics
            .into_iter()
            .enumerate()
            .filter(|(i, _)| self.blocks == 1 || parts.is_empty() || parts.contains(i))
            .map(|(_, name)| name);
        gpus.chain(nics).collect()
    }

    /// The number of paths between GPUs and NICs that belong together.
    pub(crate) fn paths(&self) -> u32 {
        self.blocks * self.gpus * self.nics
    }

    /// How many of these paths are within a NUMA node at most, with these numbers of GPUs and NICs of
    /// each NUMA node.
    pub(crate) fn near_paths(&self, by_numa: &[(u32, u32)]) -> u32 {
        let within = by_numa.iter().map(|(gpus, nics)| match self.blocks {
            1 => gpus * nics,
            _ => (gpus * self.nics).min(nics * self.gpus),
        });
        within.sum()
    }

    /// Whether the machine has enough devices, wherever they are.
    pub(crate) fn has_enough(&self, machine: &Machine<'_>) -> bool {
        machine.devices.gpus.len() >= self.all_gpus() as usize
            && machine.devices.nics.len() >= self.all_nics() as usize
    }

    /// Whether the demand takes every GPU and NIC of the machine.
    pub(crate) fn takes_all(&self, machine: &Machine<'_>) -> bool {
        machine.devices.gpus.len() == self.all_gpus() as usize
            && machine.devices.nics.len() == self.all_nics() as usize
    }

    /// How many blocks the cell can serve. The functions of a port are one NIC.
    pub(crate) fn capacity(&self, cell: &Cell) -> usize {
        (cell.gpus.len() / self.gpus as usize).min(cell.ports() / self.nics as usize)
    }

    /// Whether the cells can serve the whole demand while nothing is in use.
    pub(crate) fn fits(&self, cells: &[Cell]) -> bool {
        cells.iter().map(|cell| self.capacity(cell)).sum::<usize>() >= self.blocks as usize
    }
}
