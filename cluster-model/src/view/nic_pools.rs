//! Which `NicPool`s there are, as far as decisions read them: for which namespaces.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::nic_pool::NicPool;
use std::collections::BTreeMap;

/// Pools by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicPools {
    /// Whether one that is not here does not exist.
    is_known: bool,
    /// The namespaces that each is for; all where `None`.
    pools: BTreeMap<String, Option<Vec<String>>>,
}

/// What is known of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownPool<'a> {
    /// It does not exist.
    Missing,
    /// It is for these namespaces; for all where `None`.
    For(Option<&'a [String]>),
}

impl NicPools {
    /// A pool; `None` where nobody has said which there are.
    pub fn get(&self, name: &str) -> Option<KnownPool<'_>> {
        match self.pools.get(name) {
            Some(namespaces) => Some(KnownPool::For(namespaces.as_deref())),
            None => self.is_known.then_some(KnownPool::Missing),
        }
    }

    /// The names of all.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }
}

impl ClusterView {
    /// The pools of addresses.
    pub fn nic_pools(&self) -> &NicPools {
        &self.nic_pools
    }
}

impl Index<NicPool> for ClusterView {
    fn apply(&mut self, object: NicPool) -> Result<(), ViewError> {
        let name = object.metadata.name.unwrap_or_default();
        self.nic_pools.pools.insert(name, object.spec.namespaces);
        // A file that has one has all.
        self.nic_pools.is_known = true;
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.nic_pools.pools.remove(&key.name);
    }

    fn listed(&mut self) {
        self.nic_pools.is_known = true;
    }
}
