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

/// How many GPUs and NICs of a pod are in the cells so far: the GPUs, and the fewest and most NICs that
/// go with them.
type Used = (usize, usize, usize);

impl Topology {
    /// The share of the choices of GPUs for which NICs in cells of this level are free, evenly for all of
    /// the pod's GPUs.
    pub fn chance(&self, request: &ChanceRequest, within: Level) -> Chance {
        let ChanceRequest { gpus, gpu_count, nics, nic_count } = request;
        let all = binomial(gpus.len(), *gpu_count);
        let cells = self.cells_of_all(within).into_iter().map(|cell| {
            let own = |all: &BTreeSet<PciAddress>, of: Vec<PciAddress>| {
                of.into_iter().filter(|device| all.contains(device)).count()
            };
            (own(gpus, cell.gpus), own(nics, cell.nics))
        });
        let mut choices: BTreeMap<Used, u128> = BTreeMap::from([((0, 0, 0), 1)]);
        // GPUs that are in no cell have no near NIC, so no choice takes one of them.
        for (own_gpus, own_nics) in cells {
            let mut longer: BTreeMap<Used, u128> = BTreeMap::new();
            for ((gpus, least, most), ways) in choices {
                for some in 0..=own_gpus.min(gpu_count - gpus) {
                    let Some((few, many)) = nics_for(some, own_nics, request) else { continue };
                    let used = (gpus + some, least + few, (most + many).min(*nic_count));
                    *longer.entry(used).or_default() += ways * binomial(own_gpus, some);
                }
            }
            choices = longer;
        }
        let served = choices.into_iter().filter(|((gpus, least, most), _)| {
            gpus == gpu_count && least <= nic_count && nic_count <= most
        });
        Chance { served: served.map(|(_, ways)| ways).sum(), all }
    }
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
fn binomial(all: usize, some: usize) -> u128 {
    if some > all {
        return 0;
    }
    let factors = (0..some.min(all - some)).map(|step| (all - step, step + 1));
    factors.fold(1, |product, (up, down)| product * up as u128 / down as u128)
}
