//! The devices, shares and capacity in use.
//!
//! Follows `AllocatedState` in `structured/internal/allocatedstate.go`. It is a value: a hypothesis
//! is a clone with changes. Clones share their common part. Entries are kept by pool, so that the
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
    /// The pools of which something else is in use in this clone, each as a whole.
    changed: Held,
}

type Held = HashMap<PoolId, Arc<PoolUse>>;

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
        self.pools().all(|(_, held)| held.is_empty())
    }

    /// What is in use of each pool, in no defined order.
    fn pools(&self) -> impl Iterator<Item = (&PoolId, &PoolUse)> {
        let base = self.base.iter().filter(|(pool, _)| !self.changed.contains_key(pool));
        base.chain(&self.changed).map(|(pool, held)| (pool, &**held))
    }

    /// What is in use of a pool in this clone. Copies it only if another clone shares it.
    fn pool_mut(&mut self, pool: PoolId) -> &mut PoolUse {
        let known = self.base.get(&pool).cloned();
        let held = match Arc::get_mut(&mut self.base) {
            Some(base) if self.changed.is_empty() => {
                drop(known);
                base.entry(pool).or_default()
            }
            _ => self.changed.entry(pool).or_insert_with(|| known.unwrap_or_default()),
        };
        Arc::make_mut(held)
    }

    /// Marks a whole device as in use. Returns false if it already was.
    pub fn insert(&mut self, device: DeviceId) -> bool {
        !self.contains(&device) && self.pool_mut(device.pool_id()).devices.insert(device.device)
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

    fn share_mut(&mut self, device: DeviceId) -> &mut Shares {
        self.pool_mut(device.pool_id()).shares.entry(device.device).or_default()
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
        let changed = if self.changed.is_empty() { None } else { self.changed.get(pool) };
        PoolState { held: changed.or_else(|| self.base.get(pool)).map(|held| &**held) }
    }

    /// All devices that are in use as a whole, in no defined order.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.pools().flat_map(|(pool, held)| held.devices.iter().map(|device| pool.device(device)))
    }

    /// Merges the changes into the base, so that the next clone is cheap.
    pub(crate) fn settle(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let base = Arc::make_mut(&mut self.base);
        for (pool, held) in self.changed.drain() {
            if held.is_empty() {
                base.remove(&pool);
            } else {
                base.insert(pool, held);
            }
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
        let held = self.pool_mut(pool);
        if whole {
            held.devices.insert(device.device.clone());
        }
        if let Some(shares) = shares {
            held.shares.insert(device.device.clone(), shares.clone());
        }
    }

    /// Releases a device and all its shares.
    pub fn remove(&mut self, device: &DeviceId) {
        let pool = device.pool_id();
        if !self.pool(&pool).is_free() {
            let held = self.pool_mut(pool);
            held.devices.remove(&device.device);
            held.shares.remove(&device.device);
            if held.is_empty() {
                self.forget(&device.pool_id());
            }
        }
    }

    /// Drops what is known of a pool of which nothing is in use, if no other clone shares it.
    fn forget(&mut self, pool: &PoolId) {
        if self.changed.is_empty()
            && let Some(base) = Arc::get_mut(&mut self.base)
        {
            base.remove(pool);
        }
    }
}

impl PoolUse {
    fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.shares.is_empty()
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
    held: Option<&'a PoolUse>,
}

impl<'a> PoolState<'a> {
    /// Returns true if nothing of the pool is in use.
    pub(crate) fn is_free(self) -> bool {
        self.held.is_none_or(PoolUse::is_empty)
    }

    pub(crate) fn contains(self, device: &str) -> bool {
        self.held.is_some_and(|held| held.devices.contains(device))
    }

    pub(crate) fn is_shared(self, device: &str) -> bool {
        self.shares(device).is_some_and(|shares| shares.count > 0)
    }

    pub(crate) fn capacity_in_use(self, device: &str) -> Option<&'a [(QualifiedName, Quantity)]> {
        self.shares(device)?.capacity.as_deref()
    }

    /// The names of the devices that are in use as a whole.
    pub(crate) fn devices(self) -> impl Iterator<Item = &'a Arc<str>> {
        self.held.into_iter().flat_map(|held| &held.devices)
    }

    /// Returns true if a share of any device is in use.
    pub(crate) fn has_shares(self) -> bool {
        self.held.is_some_and(|held| !held.shares.is_empty())
    }

    /// The shares of a device.
    pub(crate) fn shares(self, device: &str) -> Option<&'a Shares> {
        self.held?.shares.get(device)
    }
}
