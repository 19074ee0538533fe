//! Chooses the address that a claim tries to reserve. Pure.

use crate::model::claim::ClaimRef;
use cluster_model::network_config::IpPrefix;
use cluster_model::nic_pool::{Addresses, NicAddress, NicAddressClaim, NicPool};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Attempts before the pool's addresses are listed. In a pool that is half full, one in
/// sixteen claims lists them.
const BLIND: usize = 4;

/// The search of one claim for an address of a pool.
#[derive(Debug)]
pub(super) struct AddressSearch<'a> {
    family: &'a Addresses,
    seed: String,
    taken: BTreeSet<IpAddr>,
    is_listed: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchStep {
    /// Create the object of this address.
    Create(IpPrefix),
    /// List the addresses of the pool.
    List,
    /// All addresses are taken.
    Full,
}

impl<'a> AddressSearch<'a> {
    pub(super) fn new(family: &'a Addresses, seed: String) -> Self {
        Self { family, seed, taken: BTreeSet::new(), is_listed: false }
    }

    pub(super) fn step(&self) -> SearchStep {
        let address = self.family.choose(&self.seed, &self.taken);
        match address {
            // An address of a list may have been given back since.
            None => SearchStep::Full,
            Some(_) if self.taken.len() >= BLIND && !self.is_listed => SearchStep::List,
            Some(address) => SearchStep::Create(address),
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

/// The addresses that were reserved in a claim's name.
///
/// A token of any node can create addresses in the name of any claim, so an address is used only
/// if the driver of this node took it, for a device that the claim has now. An address that was
/// taken on another node, or for another device, is not used as it is: the fabric controller
/// deletes it. The claim then tries to get it again.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    own: Vec<NicAddress>,
    former: Vec<NicAddress>,
}

impl Reserved {
    /// `devices` are those of the claim that this driver prepares on this node.
    pub(super) fn new(
        listed: Vec<NicAddress>,
        claim: &ClaimRef,
        node: &str,
        devices: &[String],
    ) -> Self {
        let (own, former) = listed
            .into_iter()
            .filter(|it| {
                let NicAddressClaim { namespace, name, uid } = &it.spec.claim;
                let is_claim =
                    (namespace, name, uid) == (&claim.namespace, &claim.name, &claim.uid);
                is_claim && it.is_well_named()
            })
            .partition(|it| it.spec.node == node && devices.contains(&it.spec.device));
        Self { own, former }
    }

    /// Takes out an address of the pool that the claim has for this device.
    pub(super) fn keep(
        &mut self,
        pool: &NicPool,
        family: &Addresses,
        device: &str,
    ) -> Option<IpPrefix> {
        let name = pool.metadata.name.as_deref();
        let index = self.own.iter().position(|it| {
            name == Some(&*it.spec.pool)
                && it.spec.device == device
                && it.spec.address.address.is_ipv4() == family.is_v4()
                && (family.find(it.spec.address.address) == Some(it.spec.address)
                    || is_older(it, pool))
        })?;
        Some(self.own.remove(index).spec.address)
    }

    /// Takes out an address of the pool that the claim had on another node or for another device.
    pub(super) fn former(&mut self, pool: &str, family: &Addresses) -> Option<IpPrefix> {
        let index = self
            .former
            .iter()
            .position(|it| it.spec.pool == pool && family.contains(it.spec.address.address))?;
        family.find(self.former.remove(index).spec.address.address)
    }
}

/// Whether the address was taken before the pool's spec was last written: then it may be of a range
/// that the pool no longer has, and the claim keeps it.
fn is_older(address: &NicAddress, pool: &NicPool) -> bool {
    address.created().zip(pool.written()).is_some_and(|(created, written)| created < written)
}

#[cfg(test)]
mod tests;
