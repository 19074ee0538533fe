//! Chooses addresses from ranges. Pure.

use cluster_model::network_config::{IpPrefix, NetworkConfig, number};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Chooses an address for each device: the one that the claim already has unless another
/// claim has it too, otherwise a free one. `None` if a range is full.
pub(super) fn choose_all(
    wanted: &[(usize, NetworkConfig)],
    seed: &str,
    own: &BTreeSet<IpAddr>,
    others: &BTreeSet<IpAddr>,
) -> Option<Vec<(usize, IpPrefix)>> {
    let mut used: BTreeSet<IpAddr> = BTreeSet::new();
    let mut chosen = Vec::new();
    for (index, config) in wanted {
        let range = config.interface.address_range?;
        let kept = own.iter().find(|address| {
            is_host(range, **address) && !used.contains(*address) && !others.contains(*address)
        });
        let prefix = if let Some(address) = kept {
            IpPrefix { address: *address, prefix_len: range.prefix_len }
        } else {
            let mut taken = used.clone();
            taken.extend(others);
            taken.extend(config.routes.iter().filter_map(|route| route.gateway));
            choose(range, &taken, &format!("{seed}/{index}"))?
        };
        used.insert(prefix.address);
        chosen.push((*index, prefix));
    }
    Some(chosen)
}

/// Finds a free host address in the range. The seed determines where the search starts.
fn choose(range: IpPrefix, taken: &BTreeSet<IpAddr>, seed: &str) -> Option<IpPrefix> {
    let (first, last) = range.hosts();
    // 64 bits are more hosts than any network has.
    let count = (last - first).min(u128::from(u64::MAX)) + 1;
    let digest = Sha256::digest(seed);
    let start = digest.iter().take(8).fold(0_u128, |sum, byte| (sum << 8) | u128::from(*byte));
    // Among one more candidates than taken addresses, at least one is free.
    let tries = u128::try_from(taken.len()).unwrap_or(u128::MAX).saturating_add(1).min(count);
    let free = (0..tries)
        .filter_map(|step| range.numbered(first + (start % count + step) % count))
        .find(|address| !taken.contains(address));
    free.map(|address| IpPrefix { address, prefix_len: range.prefix_len })
}

fn is_host(range: IpPrefix, address: IpAddr) -> bool {
    let (first, last) = range.hosts();
    range.contains(address) && (first..=last).contains(&number(address))
}

#[cfg(test)]
mod tests;
