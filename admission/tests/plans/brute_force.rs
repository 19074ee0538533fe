//! Computes by exhaustive search what a demand could get, from the topology alone.

use admission::nearness::Nearness;
use std::collections::BTreeMap;
use topology_graph::{PciAddress, Topology};

/// GPUs and NICs that are free, or that were allocated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    pub(crate) gpus: Vec<PciAddress>,
    pub(crate) nics: Vec<PciAddress>,
}

/// Which devices are near each other.
pub(crate) struct Near<'a> {
    topology: &'a Topology,
    by: By,
}

/// The definition of "near".
enum By {
    /// The NIC is the GPU's own.
    Pairs,
    /// They are in the same cell.
    Cells(BTreeMap<PciAddress, String>),
    /// The NIC is as near to the GPU as the NICs that the topology pairs with it.
    PathOfPairs,
}

impl<'a> Near<'a> {
    pub(crate) fn new(topology: &'a Topology, nearness: Nearness) -> Self {
        let by = match nearness {
            Nearness::Partner => By::Pairs,
            Nearness::Level(level) => {
                let cells = topology.cells(level).into_iter();
                let devices = cells.flat_map(|cell| {
                    let key = cell.key;
                    cell.gpus.into_iter().chain(cell.nics).map(move |it| (it, key.clone()))
                });
                By::Cells(devices.collect())
            }
        };
        Self { topology, by }
    }

    /// Devices that are as near as the topology's pairs, whether paired or not.
    pub(crate) fn like_pairs(topology: &'a Topology) -> Self {
        Self { topology, by: By::PathOfPairs }
    }

    pub(crate) fn is_near(&self, gpu: PciAddress, nic: PciAddress) -> bool {
        let own = || self.topology.pairs().into_iter().filter(|pair| pair.gpu == gpu);
        match &self.by {
            By::Pairs => {
                let mut partners = self.topology.partners().into_iter();
                partners.any(|pair| pair.gpu == gpu && pair.nic == nic)
            }
            By::Cells(cells) => cells.contains_key(&gpu) && cells.get(&gpu) == cells.get(&nic),
            By::PathOfPairs => {
                let farthest = own().map(|pair| self.topology.path(gpu, pair.nic)).max();
                farthest.is_some_and(|path| self.topology.path(gpu, nic) <= path)
            }
        }
    }

    /// Whether some `gpus` of the free GPUs and some `nics` of the free NICs are all near
    /// each other.
    pub(crate) fn group(&self, free: &Devices, gpus: usize, nics: usize) -> bool {
        subsets(&free.gpus, gpus).iter().any(|chosen| {
            let near_all = |nic: &&PciAddress| chosen.iter().all(|gpu| self.is_near(*gpu, **nic));
            free.nics.iter().filter(near_all).count() >= nics
        })
    }

    /// Whether some `gpus` of the free GPUs can each have `nics` near NICs of their own.
    pub(crate) fn each(&self, free: &Devices, gpus: usize, nics: usize) -> bool {
        subsets(&free.gpus, gpus).iter().any(|chosen| {
            let seats: Vec<_> = chosen.iter().flat_map(|gpu| vec![*gpu; nics]).collect();
            self.match_all(&seats, &free.nics)
        })
    }

    /// Whether each GPU slot can get its own NIC, by augmenting paths.
    fn match_all(&self, seats: &[PciAddress], nics: &[PciAddress]) -> bool {
        let mut taken: Vec<Option<usize>> = vec![None; nics.len()];
        (0..seats.len()).all(|seat| {
            let mut seen = vec![false; nics.len()];
            self.augment(seat, seats, nics, &mut taken, &mut seen)
        })
    }

    fn augment(
        &self,
        seat: usize,
        seats: &[PciAddress],
        nics: &[PciAddress],
        taken: &mut [Option<usize>],
        seen: &mut [bool],
    ) -> bool {
        for nic in 0..nics.len() {
            if seen[nic] || !self.is_near(seats[seat], nics[nic]) {
                continue;
            }
            seen[nic] = true;
            let free = match taken[nic] {
                None => true,
                Some(other) => self.augment(other, seats, nics, taken, seen),
            };
            if free {
                taken[nic] = Some(seat);
                return true;
            }
        }
        false
    }
}

fn subsets(all: &[PciAddress], size: usize) -> Vec<Vec<PciAddress>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let Some((first, rest)) = all.split_first() else { return Vec::new() };
    let with = subsets(rest, size - 1).into_iter().map(|mut chosen| {
        chosen.push(*first);
        chosen
    });
    with.chain(subsets(rest, size)).collect()
}
