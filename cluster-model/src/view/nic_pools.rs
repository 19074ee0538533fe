//! The `NicPool`s, reduced to what decisions read: the namespaces that may use each.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::nic_pool::NicPool;
use std::collections::BTreeMap;

/// Pools by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicPools {
    /// True if all existing pools are listed here.
    is_known: bool,
    pools: BTreeMap<String, Pool>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pool {
    /// The namespaces that may use it; `None` means all.
    namespaces: Option<Vec<String>>,
    /// Why it gives no addresses, if it is invalid.
    invalid: Option<String>,
}

/// What is known of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownPool<'a> {
    /// It does not exist.
    Missing,
    /// It gives no addresses, for this reason.
    Invalid(&'a str),
    /// It exists for these namespaces; `None` means all.
    For(Option<&'a [String]>),
}

impl NicPools {
    /// Returns a pool; `None` if the existing pools are unknown.
    pub fn get(&self, name: &str) -> Option<KnownPool<'_>> {
        match self.pools.get(name) {
            Some(Pool { invalid: Some(why), .. }) => Some(KnownPool::Invalid(why)),
            Some(Pool { namespaces, .. }) => Some(KnownPool::For(namespaces.as_deref())),
            None => self.is_known.then_some(KnownPool::Missing),
        }
    }

    /// The names of all pools.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }
}

impl ClusterView {
    /// The address pools.
    pub fn nic_pools(&self) -> &NicPools {
        &self.nic_pools
    }
}

impl Index<NicPool> for ClusterView {
    fn apply(&mut self, object: NicPool) -> Result<(), ViewError> {
        let name = object.metadata.name.unwrap_or_default();
        let invalid = object.spec.check().err().map(|error| error.to_string());
        let pool = Pool { namespaces: object.spec.namespaces, invalid };
        self.nic_pools.pools.insert(name, pool);
        // A file that contains one pool contains all.
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
