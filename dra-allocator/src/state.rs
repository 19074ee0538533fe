//! What is in use: devices, shares of devices, and capacity.
//!
//! The `AllocatedState` of `structured/internal/allocatedstate.go`. It is a value: a hypothesis
//! is a clone with more in it. Clones share what they have in common.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::name::{DeviceId, QualifiedName};
use crate::quantity::Quantity;

/// What allocated claims hold.
#[derive(Clone, Debug, Default)]
pub struct AllocatedState {
    /// What most clones share.
    base: Arc<Held>,
    /// What this clone has beyond the base.
    added: Held,
}

#[derive(Clone, Debug, Default)]
struct Held {
    devices: HashSet<DeviceId>,
    shares: HashMap<DeviceId, Shares>,
}

/// The shares of a device that claims hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shares {
    /// How many shares are known by their id.
    count: usize,
    /// The sum of what they take; present as soon as one share recorded any.
    capacity: Option<Vec<(QualifiedName, Quantity)>>,
}

impl AllocatedState {
    /// Nothing is in use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks a device as in use as a whole; false where it was.
    pub fn insert(&mut self, device: DeviceId) -> bool {
        !self.base.devices.contains(&device) && self.added.devices.insert(device)
    }

    /// Adds a share of a device.
    pub fn insert_share(&mut self, device: DeviceId, capacity: &[(QualifiedName, Quantity)]) {
        self.share_mut(device.clone()).count += 1;
        self.add_capacity(device, capacity);
    }

    /// Adds a share that is known by its id only, without a record of capacity.
    pub fn insert_share_id(&mut self, device: DeviceId) {
        self.share_mut(device).count += 1;
    }

    /// Adds to the capacity in use of a device, without a share.
    pub fn add_capacity(&mut self, device: DeviceId, capacity: &[(QualifiedName, Quantity)]) {
        let sums = self.share_mut(device).capacity.get_or_insert_default();
        for (name, quantity) in capacity {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.with_nanos(sum.nanos() + quantity.nanos()),
                None => sums.push((name.clone(), *quantity)),
            }
        }
    }

    /// The shares of a device in this clone; those of the base are copied here first.
    fn share_mut(&mut self, device: DeviceId) -> &mut Shares {
        let base = self.base.shares.get(&device);
        self.added.shares.entry(device).or_insert_with(|| base.cloned().unwrap_or_default())
    }

    /// Whether the device is in use as a whole.
    pub fn contains(&self, device: &DeviceId) -> bool {
        self.base.devices.contains(device) || self.added.devices.contains(device)
    }

    /// Whether any share of the device is in use, known by its id.
    pub fn is_shared(&self, device: &DeviceId) -> bool {
        self.shares(device).is_some_and(|shares| shares.count > 0)
    }

    /// The capacity of a device that is in use; none where none was ever recorded.
    pub fn capacity_in_use(&self, device: &DeviceId) -> Option<&[(QualifiedName, Quantity)]> {
        self.shares(device)?.capacity.as_deref()
    }

    fn shares(&self, device: &DeviceId) -> Option<&Shares> {
        self.added.shares.get(device).or_else(|| self.base.shares.get(device))
    }

    /// All devices that are in use as a whole, in no defined order.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.base.devices.iter().chain(&self.added.devices)
    }

    /// Makes what clones have beyond the base part of the base, so that the next clone is cheap.
    pub(crate) fn settle(&mut self) {
        if self.added.devices.is_empty() && self.added.shares.is_empty() {
            return;
        }
        let base = Arc::make_mut(&mut self.base);
        base.devices.extend(self.added.devices.drain());
        base.shares.extend(self.added.shares.drain());
    }

    /// Frees a device, or all its shares.
    pub fn remove(&mut self, device: &DeviceId) {
        self.settle();
        let base = Arc::make_mut(&mut self.base);
        base.devices.remove(device);
        base.shares.remove(device);
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
