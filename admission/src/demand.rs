//! The demand as a claim sees it: blocks of GPUs and NICs that belong together,
//! and the names of the requests for them.
//!
//! Where each GPU has its own NICs and "near" means "of one cell", blocks may be
//! put together: any GPU of a cell is near any NIC of it, so that six pairs over
//! cells of four are the same as blocks of one, two and three pairs. Fewer
//! blocks make a far shorter search.

mod coarse;

use crate::intent::{Intent, Pairing, Share};
use std::collections::BTreeSet;
use std::ops::Range;
use topology_graph::Cell;

/// Blocks that are looked at for putting them together: GPUs of the largest
/// machines. The ways to spread more of them over cells grow too fast.
const TOGETHER_MAX: u32 = 8;

/// Blocks of equal size, some of them asked for together. A group is one block;
/// where each GPU has its own NICs, each GPU with them is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// How many blocks.
    pub(crate) blocks: u32,
    /// GPUs of a block.
    pub(crate) gpus: u32,
    /// NICs of a block.
    pub(crate) nics: u32,
    /// How many blocks are asked for together; the sum is all of them.
    sizes: Vec<u32>,
    /// The GPUs of the pod in the parts that containers get; a part is a request.
    parts: Vec<Range<u32>>,
}

/// Requests for the devices of one or more blocks.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Name of the request for the NICs, and how many.
    pub(crate) nics: (String, u32),
    /// Names of the requests for GPUs, and how many each is for.
    pub(crate) gpus: Vec<(String, u32)>,
}

/// What a container may use of the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The container.
    pub container: String,
    /// The requests; `None` is the whole claim.
    pub requests: Option<Vec<String>>,
}

impl Demand {
    pub(crate) fn of(intent: &Intent) -> Self {
        match intent.pairing {
            Pairing::Group => {
                let parts = parts(intent);
                Self { blocks: 1, gpus: intent.gpus, nics: intent.nics, sizes: vec![1], parts }
            }
            Pairing::Each => Self {
                blocks: intent.gpus,
                gpus: 1,
                nics: intent.nics_per_gpu(),
                sizes: vec![1; intent.gpus as usize],
                parts: (0..intent.gpus).map(|gpu| gpu..gpu + 1).collect(),
            },
        }
    }

    /// GPUs of the pod.
    pub(crate) fn all_gpus(&self) -> u32 {
        self.blocks * self.gpus
    }

    /// NICs of the pod.
    pub(crate) fn all_nics(&self) -> u32 {
        self.blocks * self.nics
    }

    /// How many blocks each of [`Self::requests`] is for.
    pub(crate) fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// The requests, block by block.
    pub(crate) fn requests(&self) -> Vec<Block> {
        if self.blocks > 1 {
            let block = |(i, size): (usize, &u32)| Block {
                nics: (format!("nic-{i}"), size * self.nics),
                gpus: vec![(format!("gpu-{i}"), size * self.gpus)],
            };
            return self.sizes.iter().enumerate().map(block).collect();
        }
        let gpus = self.parts.iter().enumerate();
        let gpus = gpus.map(|(i, part)| (self.part_name(i), part.end - part.start)).collect();
        vec![Block { nics: ("nics".to_owned(), self.nics), gpus }]
    }

    /// The same with blocks put together, for machines with these cells; `None`
    /// where that is nothing new, or where containers have GPUs of their own.
    pub(crate) fn together(&self, shares: &[Share], machines: &[Vec<Cell>]) -> Option<Self> {
        let all = 0..self.all_gpus();
        let in_common = shares.iter().all(|share| share.gpus == all || share.gpus.is_empty());
        if !in_common || !(3..=TOGETHER_MAX).contains(&self.blocks) {
            return None;
        }
        let room = |cells: &Vec<Cell>| cells.iter().map(|cell| self.capacity(cell)).collect();
        let machines: Vec<Vec<usize>> = machines.iter().map(room).collect();
        let sizes = coarse::sizes(self.blocks, &machines)?;
        Some(self.in_sizes(&sizes))
    }

    /// The same with so many blocks put together each; the sum is all of them.
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

    /// Every way to spread the blocks over cells that have room for so many each: how many
    /// are in each cell.
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

    /// The same devices by plain counts, as one block. `None` where containers
    /// have GPUs of their own: which NICs are whose could not be said.
    pub(crate) fn as_counts(&self, shares: &[Share]) -> Option<Self> {
        let all = 0..self.all_gpus();
        let in_common = shares.iter().all(|share| share.gpus == all || share.gpus.is_empty());
        in_common.then(|| Self {
            blocks: 1,
            gpus: self.all_gpus(),
            nics: self.all_nics(),
            sizes: vec![1],
            parts: vec![all],
        })
    }

    /// What each container may use.
    pub(crate) fn grants(&self, shares: &[Share]) -> Vec<Grant> {
        let grant = |share: &Share| {
            let is_in =
                |part: &Range<u32>| share.gpus.start <= part.start && part.end <= share.gpus.end;
            let parts: Vec<usize> =
                (0..self.parts.len()).filter(|i| is_in(&self.parts[*i])).collect();
            let whole = parts.len() == self.parts.len();
            let requests = (!whole).then(|| self.names(&parts));
            Grant { container: share.container.clone(), requests }
        };
        shares.iter().map(grant).collect()
    }

    /// Requests of the parts; the NICs of a group are for all, those of a pair
    /// go with its GPU, and all go to a container that has no GPU.
    fn names(&self, parts: &[usize]) -> Vec<String> {
        let gpus = parts.iter().map(|part| self.part_name(*part));
        let nics: Vec<_> = self.requests().into_iter().map(|block| block.nics.0).collect();
        let own =
            |(i, _): &(usize, String)| self.blocks == 1 || parts.is_empty() || parts.contains(i);
        let nics = nics.into_iter().enumerate().filter(own).map(|(_, name)| name);
        gpus.chain(nics).collect()
    }

    /// How many blocks a cell can serve.
    pub(crate) fn capacity(&self, cell: &Cell) -> usize {
        (cell.gpus.len() / self.gpus as usize).min(cell.nics.len() / self.nics as usize)
    }

    /// Whether the cells can serve the whole demand when nothing is in use.
    pub(crate) fn fits(&self, cells: &[Cell]) -> bool {
        cells.iter().map(|cell| self.capacity(cell)).sum::<usize>() >= self.blocks as usize
    }
}

/// The pod's GPUs, cut wherever a container's share begins or ends.
fn parts(intent: &Intent) -> Vec<Range<u32>> {
    let shares = intent.shares.iter().filter(|share| !share.gpus.is_empty());
    let mut cuts: BTreeSet<u32> =
        shares.flat_map(|share| [share.gpus.start, share.gpus.end]).collect();
    cuts.extend([0, intent.gpus]);
    let cuts: Vec<_> = cuts.into_iter().collect();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}
