//! The devices, shares and capacity in use.
//!
//! Follows `AllocatedState` in `structured/internal/allocatedstate.go`. It is a value: a hypothesis
//! is a clone with additions. Clones share their common part. Entries are kept by pool, so that the
//! use of a node is found with one look-up per pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::hash::HashMap;
use crate::name::{DeviceId, PoolId, QualifiedName};
use crate::quantity::Quantity;

/// The devices, shares and capacity that allocated claims hold.
#[derive(Clone, Debug, Default)]
pub struct AllocatedState {
    /// The part that most clones share.
    base: Arc<Held>,
    /// The additions of this clone.
    added: Held,
}

type Held = HashMap<PoolId, PoolUse>;

/// What is held of a pool, by device name.
#[derive(Clone, Debug, Default)]
struct PoolUse {
    devices: BTreeSet<Arc<str>>,
    shares: BTreeMap<Arc<str>, Shares>,
}

/// The shares of a device that claims hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    /// The number of shares with a known ID.
    pub(crate) count: usize,
    /// The total capacity of the shares; `None` if no share recorded any.
    pub(crate) capacity: Option<Vec<(QualifiedName, Quantity)>>,
}

impl AllocatedState {
    /// Creates an empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is in use.
    pub fn is_empty(&self) -> bool {
        self.base.is_empty() && self.added.is_empty()
    }

    /// Marks a whole device as in use. Returns false if it already was.
    pub fn insert(&mut self, device: DeviceId) -> bool {
        !self.contains(&device)
            && self.added.entry(device.pool_id()).or_default().devices.insert(device.device)
    }

    /// Adds a share of a device.
    pub fn insert_share(&mut self, device: DeviceId, capacity: &[(QualifiedName, Quantity)]) {
        self.share_mut(device.clone()).count += 1;
        self.add_capacity(device, capacity);
    }

    /// Adds a share of which only the ID is known, without recorded capacity.
    pub fn insert_share_id(&mut self, device: DeviceId) {
        self.share_mut(device).count += 1;
    }

    /// Adds capacity in use to a device, without adding a share.
    pub fn add_capacity(&mut self, device: DeviceId, capacity: &[(QualifiedName, Quantity)]) {
        let sums = self.share_mut(device).capacity.get_or_insert_default();
        for (name, quantity) in capacity {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.with_nanos(sum.nanos() + quantity.nanos()),
                None => sums.push((name.clone(), *quantity)),
            }
        }
    }

    /// The shares of a device in this clone; copies those of the base first.
    fn share_mut(&mut self, device: DeviceId) -> &mut Shares {
        let pool = device.pool_id();
        let base = self.base.get(&pool).and_then(|pool| pool.shares.get(&device.device));
        let added = self.added.entry(pool).or_default();
        added.shares.entry(device.device).or_insert_with(|| base.cloned().unwrap_or_default())
    }

    /// Returns true if the whole device is in use.
    pub fn contains(&self, device: &DeviceId) -> bool {
        self.pool(&device.pool_id()).contains(&device.device)
    }

    /// Returns true if any share of the device with a known ID is in use.
    pub fn is_shared(&self, device: &DeviceId) -> bool {
        self.pool(&device.pool_id()).is_shared(&device.device)
    }

    /// Returns true if the device or any share of it is in use.
    pub fn is_taken(&self, device: &DeviceId) -> bool {
        let pool = self.pool(&device.pool_id());
        !pool.is_free() && (pool.contains(&device.device) || pool.is_shared(&device.device))
    }

    /// The capacity of a device that is in use; `None` if none was ever recorded.
    pub fn capacity_in_use(&self, device: &DeviceId) -> Option<&[(QualifiedName, Quantity)]> {
        self.pool(&device.pool_id()).capacity_in_use(&device.device)
    }

    /// What is in use of a pool.
    pub(crate) fn pool(&self, pool: &PoolId) -> PoolState<'_> {
        let added = if self.added.is_empty() { None } else { self.added.get(pool) };
        PoolState { base: self.base.get(pool), added }
    }

    /// All devices that are in use as a whole, in no defined order.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        let pools = self.base.iter().chain(&self.added);
        pools.flat_map(|(pool, held)| held.devices.iter().map(|device| pool.device(device)))
    }

    /// Merges the additions into the base, so that the next clone is cheap.
    pub(crate) fn settle(&mut self) {
        if self.added.is_empty() {
            return;
        }
        let base = Arc::make_mut(&mut self.base);
        for (pool, added) in self.added.drain() {
            let held = base.entry(pool).or_default();
            held.devices.extend(added.devices);
            held.shares.extend(added.shares);
        }
    }

    /// Marks a device and its shares as in use as far as they are in another state.
    pub fn put_back(&mut self, device: &DeviceId, from: &Self) {
        let pool = device.pool_id();
        let known = from.pool(&pool);
        let (whole, shares) = (known.contains(&device.device), known.shares(&device.device));
        if !whole && shares.is_none() {
            return;
        }
        self.settle();
        let held = Arc::make_mut(&mut self.base).entry(pool).or_default();
        if whole {
            held.devices.insert(device.device.clone());
        }
        if let Some(shares) = shares {
            held.shares.insert(device.device.clone(), shares.clone());
        }
    }

    /// Releases a device and all its shares.
    pub fn remove(&mut self, device: &DeviceId) {
        self.settle();
        let (base, pool) = (Arc::make_mut(&mut self.base), device.pool_id());
        let Some(held) = base.get_mut(&pool) else { return };
        held.devices.remove(&device.device);
        held.shares.remove(&device.device);
        if held.devices.is_empty() && held.shares.is_empty() {
            base.remove(&pool);
        }
    }
}

impl FromIterator<DeviceId> for AllocatedState {
    fn from_iter<I: IntoIterator<Item = DeviceId>>(devices: I) -> Self {
        let mut state = Self::new();
        for device in devices {
            state.insert(device);
        }
        state.settle();
        state
    }
}

/// What is in use of one pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolState<'a> {
    base: Option<&'a PoolUse>,
    added: Option<&'a PoolUse>,
}

impl<'a> PoolState<'a> {
    fn parts(self) -> impl Iterator<Item = &'a PoolUse> {
        self.base.into_iter().chain(self.added)
    }

    /// Returns true if nothing of the pool is in use.
    pub(crate) fn is_free(self) -> bool {
        self.base.is_none() && self.added.is_none()
    }

    pub(crate) fn contains(self, device: &str) -> bool {
        self.parts().any(|part| part.devices.contains(device))
    }

    pub(crate) fn is_shared(self, device: &str) -> bool {
        self.shares(device).is_some_and(|shares| shares.count > 0)
    }

    pub(crate) fn capacity_in_use(self, device: &str) -> Option<&'a [(QualifiedName, Quantity)]> {
        self.shares(device)?.capacity.as_deref()
    }

    /// The names of the devices that are in use as a whole.
    pub(crate) fn devices(self) -> impl Iterator<Item = &'a Arc<str>> {
        self.parts().flat_map(|part| &part.devices)
    }

    /// Returns true if a share of any device is in use.
    pub(crate) fn has_shares(self) -> bool {
        self.parts().any(|part| !part.shares.is_empty())
    }

    /// The shares of a device; entries of the clone include those of the base.
    pub(crate) fn shares(self, device: &str) -> Option<&'a Shares> {
        let of = |part: Option<&'a PoolUse>| part.and_then(|part| part.shares.get(device));
        of(self.added).or_else(|| of(self.base))
    }
}
