//! How likely a pod finds near NICs whose GPUs somebody else chooses: the share of the choices of GPUs for
//! which [`Topology::nearest`] finds NICs. It counts cells instead of trying each choice, of which a
//! machine with 16 GPUs has 12,870.

use crate::{Level, PciAddress, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// The free devices of a machine, and a pod that gets any of these GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChanceRequest {
    /// The GPUs that the pod may get.
    pub gpus: BTreeSet<PciAddress>,
    /// The number of GPUs that it gets.
    pub gpu_count: usize,
    /// The NICs that it can get, one of each port.
    pub nics: BTreeSet<PciAddress>,
    /// The number of NICs that it needs.
    pub nic_count: usize,
}

/// The choices of GPUs, and those for which near NICs are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    /// Choices of GPUs with near NICs.
    pub served: u128,
    /// All choices of GPUs; 0 if there are too few.
    pub all: u128,
}

/// The choices of GPUs with near NICs, by how many GPUs they take of each group.
pub type Served = BTreeMap<Vec<usize>, u128>;

/// How many GPUs and NICs of a pod are in the cells so far: the GPUs, and the fewest and most NICs that
/// go with them.
type Used = (usize, usize, usize);

impl Topology {
    /// The share of the choices of GPUs for which NICs in cells of this level are free, evenly for all of
    /// the pod's GPUs.
    pub fn chance(&self, request: &ChanceRequest, within: Level) -> Chance {
        let all = binomial(request.gpus.len(), request.gpu_count);
        Chance { served: self.served(request, within, &[]).into_values().sum(), all }
    }

    /// The choices of GPUs that [`Self::chance`] counts, told apart by the number of GPUs that they take
    /// of each of these groups. A GPU is in one group at most.
    pub fn served(
        &self,
        request: &ChanceRequest,
        within: Level,
        groups: &[BTreeSet<PciAddress>],
    ) -> Served {
        let ChanceRequest { gpus, gpu_count, nics, nic_count } = request;
        let cells = self.cells_of_all(within).into_iter().map(|cell| {
            let own = cell.gpus.into_iter().filter(|gpu| gpus.contains(gpu));
            let own_nics = cell.nics.into_iter().filter(|nic| nics.contains(nic)).count();
            (by_group(own, groups), own_nics)
        });
        let none = ((0, 0, 0), vec![0; groups.len()]);
        let mut choices: BTreeMap<(Used, Vec<usize>), u128> = BTreeMap::from([(none, 1)]);
        // GPUs that are in no cell have no near NIC, so no choice takes one of them.
        for (own_gpus, own_nics) in cells {
            let mut longer: BTreeMap<(Used, Vec<usize>), u128> = BTreeMap::new();
            for (((gpus, least, most), of_groups), ways) in choices {
                for (some, of_cell, more_ways) in selections(&own_gpus, gpu_count - gpus) {
                    let Some((few, many)) = nics_for(some, own_nics, request) else { continue };
                    let used = (gpus + some, least + few, (most + many).min(*nic_count));
                    let of_groups = of_groups.iter().zip(of_cell).map(|(one, more)| one + more);
                    *longer.entry((used, of_groups.collect())).or_default() += ways * more_ways;
                }
            }
            choices = longer;
        }
        let mut served = Served::new();
        for (((gpus, least, most), of_groups), ways) in choices {
            if gpus == *gpu_count && least <= *nic_count && *nic_count <= most {
                *served.entry(of_groups).or_default() += ways;
            }
        }
        served
    }
}

/// The number of these GPUs in each group, and then of those in none.
fn by_group(gpus: impl Iterator<Item = PciAddress>, groups: &[BTreeSet<PciAddress>]) -> Vec<usize> {
    let mut counts = vec![0; groups.len() + 1];
    for gpu in gpus {
        let group = groups.iter().position(|group| group.contains(&gpu)).unwrap_or(groups.len());
        if let Some(count) = counts.get_mut(group) {
            *count += 1;
        }
    }
    counts
}

/// The ways to take up to `most` GPUs of groups of these sizes: how many in all, how many of each group,
/// and how many choices of GPUs that are.
fn selections(sizes: &[usize], most: usize) -> Vec<(usize, Vec<usize>, u128)> {
    let mut all = vec![(0, Vec::new(), 1)];
    for size in sizes {
        let mut longer = Vec::new();
        for (taken, of_groups, ways) in all {
            for some in 0..=(*size).min(most - taken) {
                let of_groups: Vec<usize> = of_groups.iter().copied().chain([some]).collect();
                longer.push((taken + some, of_groups, ways * binomial(*size, some)));
            }
        }
        all = longer;
    }
    all
}

impl Chance {
    /// The choices without near NICs in parts of the whole, rounded up: 0 only if every choice is served.
    pub fn missed(self, parts: u32) -> u32 {
        let missed = self.all.saturating_sub(self.served) * u128::from(parts);
        let missed = missed.checked_div(self.all).map(|_| missed.div_ceil(self.all));
        missed.map_or(parts, |missed| u32::try_from(missed).unwrap_or(parts))
    }
}

/// The fewest and most NICs of a cell that go with this many of its GPUs, so that all GPUs have equally
/// many NICs, or all NICs equally many GPUs, up to one; `None` if the cell has too few.
fn nics_for(gpus: usize, free: usize, request: &ChanceRequest) -> Option<(usize, usize)> {
    let ChanceRequest { gpu_count, nic_count, .. } = request;
    if gpus == 0 {
        return Some((0, 0));
    }
    let (least, most) = if nic_count >= gpu_count {
        (gpus * (nic_count / gpu_count), gpus * nic_count.div_ceil(*gpu_count))
    } else {
        let per_nic = gpu_count.checked_div(*nic_count)?;
        (gpus.div_ceil(gpu_count.div_ceil(*nic_count)), gpus / per_nic)
    };
    let most = most.min(free);
    (least <= most).then_some((least, most))
}

/// The number of choices of `some` among `all`.
pub fn binomial(all: usize, some: usize) -> u128 {
    if some > all {
        return 0;
    }
    let factors = (0..some.min(all - some)).map(|step| (all - step, step + 1));
    factors.fold(1, |product, (up, down)| product * up as u128 / down as u128)
}
