//! Chooses the address that a claim tries to reserve. Pure.

use cluster_model::network_config::IpPrefix;
use cluster_model::nic_pool::{Addresses, NicAddressSpec};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Attempts before the pool's addresses are listed. In a pool that is half full, one in
/// sixteen claims lists them.
const BLIND: usize = 4;

/// The search of one claim for an address of a pool.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    family: &'a Addresses,
    seed: String,
    taken: BTreeSet<IpAddr>,
    is_listed: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create the object of this address.
    Create(IpPrefix),
    /// List the addresses of the pool.
    List,
    /// All addresses are taken.
    Full,
}

impl<'a> Choice<'a> {
    pub(super) fn new(family: &'a Addresses, seed: String) -> Self {
        Self { family, seed, taken: BTreeSet::new(), is_listed: false }
    }

    pub(super) fn step(&self) -> Step {
        let address = self.family.choose(&self.seed, &self.taken);
        match address {
            // An address of a list may have been given back since.
            None => Step::Full,
            Some(_) if self.taken.len() >= BLIND && !self.is_listed => Step::List,
            Some(address) => Step::Create(address),
        }
    }

    /// Records that another claim has the address.
    pub(super) fn is_taken(&mut self, address: IpAddr) {
        self.taken.insert(address);
    }

    /// Records the pool's addresses that claims have.
    pub(super) fn are_taken(&mut self, addresses: impl Iterator<Item = IpAddr>) {
        self.taken.extend(addresses.filter(|address| self.family.contains(*address)));
        self.is_listed = true;
    }
}

/// An address of the pool that the claim already has: preferably the one for this device.
/// Each is used for one device only.
pub(super) fn kept(
    own: &mut Vec<NicAddressSpec>,
    pool: &str,
    device: &str,
    is_v4: bool,
) -> Option<IpPrefix> {
    let fits = |it: &NicAddressSpec| it.pool == pool && it.address.address.is_ipv4() == is_v4;
    let of_device = own.iter().position(|it| fits(it) && it.device == device);
    let index = of_device.or_else(|| own.iter().position(fits))?;
    Some(own.remove(index).address)
}

#[cfg(test)]
mod tests;
