//! The addresses of a pool in one IP family, as blocks of numbers.

use super::{NicPoolSpec, NicRange};
use crate::network_config::{IpPrefix, address, number};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The addresses of one IP family that NICs can get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    is_v4: bool,
    has_ranges: bool,
    /// Disjoint, in the order of the ranges.
    blocks: Vec<Block>,
}

/// Consecutive addresses of one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first: u128,
    last: u128,
    prefix_len: u8,
}

impl Addresses {
    pub(super) fn new(spec: &NicPoolSpec, is_v4: bool) -> Self {
        let ranges = spec.ranges.iter().filter(|range| range.cidr.address.is_ipv4() == is_v4);
        let ranges: Vec<&NicRange> = ranges.collect();
        let excluded = spec.exclude.iter().filter(|it| it.address.is_ipv4() == is_v4);
        let excluded = excluded.map(IpPrefix::bounds);
        let routers = ranges.iter().filter_map(|range| range.gateway);
        let routers = routers.chain(spec.routes.iter().filter_map(|route| route.gateway));
        let routers = routers.filter(|it| it.is_ipv4() == is_v4).map(|it| (number(it), number(it)));
        let mut taken: Vec<(u128, u128)> = excluded.chain(routers).collect();
        let mut blocks = Vec::new();
        for range in &ranges {
            let (first, last) = hosts(range);
            if first > last {
                continue;
            }
            let prefix_len = range.cidr.prefix_len;
            let free = without((first, last), &taken);
            blocks.extend(free.into_iter().map(|(first, last)| Block { first, last, prefix_len }));
            // If ranges overlap, the first one has the address.
            taken.push((first, last));
        }
        Self { is_v4, has_ranges: !ranges.is_empty(), blocks }
    }

    /// Returns true for IPv4 addresses.
    pub fn is_v4(&self) -> bool {
        self.is_v4
    }

    pub(super) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// The number of addresses.
    pub fn count(&self) -> u128 {
        self.blocks.iter().fold(0, |sum: u128, block| sum.saturating_add(block.count()))
    }

    /// Returns true if the address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.find(address).is_some()
    }

    /// The address with the length of its range's network, if it is one of them.
    pub fn find(&self, address: IpAddr) -> Option<IpPrefix> {
        if address.is_ipv4() != self.is_v4 {
            return None;
        }
        let number = number(address);
        let block = self.blocks.iter().find(|it| (it.first..=it.last).contains(&number))?;
        Some(IpPrefix { address, prefix_len: block.prefix_len })
    }

    /// Chooses an address that is not taken: the first one after a start position that depends on
    /// the seed, so that concurrent claims rarely choose the same. `None` if all are taken.
    pub fn choose(&self, seed: &str, taken: &BTreeSet<IpAddr>) -> Option<IpPrefix> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let digest = Sha256::digest(seed);
        let start = digest.iter().take(8).fold(0_u128, |sum, byte| (sum << 8) | u128::from(*byte));
        // One more candidate than there are taken addresses: at least one is free.
        let tries = u128::try_from(taken.len()).unwrap_or(u128::MAX).saturating_add(1).min(count);
        let start = start % count;
        let to_end = count - start;
        let candidates = (0..tries).filter_map(|step| {
            let place = if step < to_end { start + step } else { step - to_end };
            self.get(place)
        });
        candidates.into_iter().find(|prefix| !taken.contains(&prefix.address))
    }

    fn get(&self, mut place: u128) -> Option<IpPrefix> {
        for block in &self.blocks {
            if place < block.count() {
                let address = address(block.first + place, self.is_v4)?;
                return Some(IpPrefix { address, prefix_len: block.prefix_len });
            }
            place -= block.count();
        }
        None
    }
}

impl Block {
    fn count(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

/// The first and the last host address of a range.
fn hosts(range: &NicRange) -> (u128, u128) {
    let (first, last) = range.cidr.hosts();
    (
        range.first.map_or(first, |it| number(it).max(first)),
        range.last.map_or(last, |it| number(it).min(last)),
    )
}

/// Removes taken intervals from a block.
fn without(block: (u128, u128), taken: &[(u128, u128)]) -> Vec<(u128, u128)> {
    let mut left = vec![block];
    for (from, to) in taken {
        left = left
            .into_iter()
            .flat_map(|(first, last)| {
                if *to < first || *from > last {
                    return [Some((first, last)), None];
                }
                let before = (first < *from).then(|| (first, from - 1));
                [before, (*to < last).then(|| (to + 1, last))]
            })
            .flatten()
            .collect();
    }
    left
}
