//! Chooses addresses from ranges. Pure.

use cluster_model::network_config::{IpPrefix, NetworkConfig};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    let (first, count) = hosts(range)?;
    let digest = Sha256::digest(seed);
    let start = digest.iter().take(8).fold(0_u128, |sum, byte| (sum << 8) | u128::from(*byte));
    // Among one more candidates than taken addresses, at least one is free.
    let tries = u128::try_from(taken.len()).unwrap_or(u128::MAX).saturating_add(1).min(count);
    let candidate = |step| {
        let number = first + (start % count + step) % count;
        if range.address.is_ipv4() {
            u32::try_from(number).ok().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
        } else {
            Some(IpAddr::V6(Ipv6Addr::from_bits(number)))
        }
    };
    let free = (0..tries).filter_map(candidate).find(|address| !taken.contains(address));
    free.map(|address| IpPrefix { address, prefix_len: range.prefix_len })
}

fn is_host(range: IpPrefix, address: IpAddr) -> bool {
    let same = range.address.is_ipv4() == address.is_ipv4();
    hosts(range)
        .is_some_and(|(first, count)| same && (first..first + count).contains(&bits(address)))
}

/// The first address of a host in the range, and how many there are: without IPv4's
/// network and broadcast addresses, and IPv6's anycast address of the routers.
fn hosts(range: IpPrefix) -> Option<(u128, u128)> {
    let width = if range.address.is_ipv4() { 32 } else { 128 };
    let free = u32::from(width - range.prefix_len.min(width));
    // Beyond 64 bits a network has more hosts than ever could be.
    let size = 1_u128 << free.min(64);
    let network = (bits(range.address) >> free.min(127)) << free.min(127);
    let (skipped, count) = match (range.address.is_ipv4(), free) {
        (_, 0) => (0, 1),
        (true, 1) => (0, 2),
        (true, _) => (1, size - 2),
        (false, _) => (1, size - 1),
    };
    (count > 0).then_some((network + skipped, count))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests;
