//! The demand of an intent.

use super::Intent;
use crate::alignment::Pairing;
use crate::demand::Demand;
use std::collections::BTreeSet;
use std::ops::Range;

impl Demand {
    /// What the pod asks for, in blocks by its pairing.
    pub(crate) fn of(intent: &Intent) -> Self {
        let Intent { gpus, nics, .. } = *intent;
        match intent.pairing {
            Pairing::Group => Self::new(1, gpus, nics, parts(intent)),
            Pairing::Shared => {
                let each = gpus.checked_div(nics).unwrap_or_default();
                let parts = (0..nics).map(|nic| nic * each..(nic + 1) * each);
                Self::new(nics, each, 1, parts.collect())
            }
            Pairing::Each => {
                let parts = (0..gpus).map(|gpu| gpu..gpu + 1);
                Self::new(gpus, 1, intent.nics_per_gpu(), parts.collect())
            }
        }
    }

    /// What the pod asks for if the kubelet can choose any GPUs of a node: the NICs of each must be near
    /// it. If they do not divide evenly, each GPU counts with the most that one can get.
    pub(crate) fn of_any_gpus(intent: &Intent) -> Self {
        let nics = match intent.pairing {
            Pairing::Each => intent.gpus * intent.nics.div_ceil(intent.gpus.max(1)),
            Pairing::Group | Pairing::Shared => intent.nics,
        };
        Self::of(&Intent { nics, ..intent.clone() })
    }
}

/// Splits the pod's GPUs wherever a container's share begins or ends.
fn parts(intent: &Intent) -> Vec<Range<u32>> {
    let shares = intent.shares.iter().filter(|share| !share.gpus.is_empty());
    let mut cuts: BTreeSet<u32> =
        shares.flat_map(|share| [share.gpus.start, share.gpus.end]).collect();
    cuts.extend([0, intent.gpus]);
    let cuts: Vec<_> = cuts.into_iter().collect();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}
