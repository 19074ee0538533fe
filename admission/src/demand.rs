//! The demand as a claim sees it: blocks of GPUs and NICs that belong together,
//! and the names of the requests for them.

use crate::intent::{Intent, Pairing, Share};
use std::collections::BTreeSet;
use std::ops::Range;
use topology_graph::Cell;

/// Blocks of equal size. A group is one block; where each GPU has its own NICs,
/// each GPU with them is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// How many blocks.
    pub(crate) blocks: u32,
    /// GPUs of a block.
    pub(crate) gpus: u32,
    /// NICs of a block.
    pub(crate) nics: u32,
    /// The GPUs of the pod in the parts that containers get; a part is a request.
    parts: Vec<Range<u32>>,
}

/// Requests for the devices of one block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Name of the request for the NICs.
    pub(crate) nics: String,
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
                Self { blocks: 1, gpus: intent.gpus, nics: intent.nics, parts: parts(intent) }
            }
            Pairing::Each => Self {
                blocks: intent.gpus,
                gpus: 1,
                nics: intent.nics_per_gpu(),
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

    /// The requests, block by block.
    pub(crate) fn requests(&self) -> Vec<Block> {
        if self.blocks > 1 {
            let block = |i| Block { nics: format!("nic-{i}"), gpus: vec![(format!("gpu-{i}"), 1)] };
            return (0..self.blocks).map(block).collect();
        }
        let gpus = self.parts.iter().enumerate();
        let gpus = gpus.map(|(i, part)| (self.part_name(i), part.end - part.start)).collect();
        vec![Block { nics: "nics".to_owned(), gpus }]
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
        let nics: Vec<_> = self.requests().into_iter().map(|block| block.nics).collect();
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
