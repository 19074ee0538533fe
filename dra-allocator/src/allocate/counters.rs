//! Counters that devices of a pool share (partitionable devices).
//!
//! Follows `checkAvailableCounters` in `allocator_*.go`: available is the total of the counter sets
//! minus what the allocated devices of the pool consume. The result may be negative.

use crate::device::Device;
use crate::inventory::Pool;
use crate::settings::Settings;
use crate::state::PoolState;

/// The counters of all pools during a search.
#[derive(Debug, Default)]
pub(super) struct Counters<'a> {
    groups: Vec<Group<'a>>,
    /// What each candidate consumes; `None` until it is computed.
    draws: Vec<Option<Draw>>,
}

/// What a device consumes: its group, and the amount per slot.
#[derive(Debug)]
struct Draw {
    group: usize,
    amounts: Vec<(usize, i128)>,
}

/// The counters of a pool; with quirk `counters_by_pool_name`, of all pools with one name.
#[derive(Debug)]
struct Group<'a> {
    driver: &'a str,
    pool: &'a str,
    /// Counters by set and name.
    slots: Vec<Slot<'a>>,
}

#[derive(Debug)]
struct Slot<'a> {
    set: &'a str,
    counter: &'a str,
    available: Option<i128>,
    consumed: i128,
}

/// Returns true if any part of the device is allocated (`IsDeviceAllocated`).
pub(super) fn is_allocated(device: &Device, state: PoolState<'_>, settings: &Settings) -> bool {
    let name = &device.id.device;
    let shared = !settings.quirks.permutations;
    state.contains(name)
        || (shared && (state.is_shared(name) || state.capacity_in_use(name).is_some()))
}

impl<'a> Group<'a> {
    /// Computes what is available. Only the first device of a group is used for this, whatever its
    /// pool.
    fn new(pool: &Pool<'a>, state: PoolState<'_>, settings: &Settings) -> Self {
        let mut group = Self { driver: &pool.id.driver, pool: &pool.id.pool, slots: Vec::new() };
        for set in &pool.counter_sets {
            for (counter, amount) in &set.counters {
                let slot = group.slot(&set.name, counter);
                group.slots[slot].available = Some(amount.nanos());
            }
        }
        let allocated = pool.all_devices().filter(|device| is_allocated(device, state, settings));
        for consumed in allocated.flat_map(Device::consumes_counters) {
            for (counter, amount) in &consumed.counters {
                let slot = group.slot(&consumed.set, counter);
                if let Some(available) = &mut group.slots[slot].available {
                    *available -= amount.nanos();
                }
            }
        }
        group
    }

    fn slot(&mut self, set: &'a str, counter: &'a str) -> usize {
        let known = self.slots.iter().position(|slot| slot.set == set && slot.counter == counter);
        known.unwrap_or_else(|| {
            self.slots.push(Slot { set, counter, available: None, consumed: 0 });
            self.slots.len() - 1
        })
    }

    fn is_exceeded(&self) -> bool {
        self.slots.iter().any(|slot| slot.available.is_some_and(|left| left < slot.consumed))
    }
}

impl<'a> Counters<'a> {
    /// Creates counters for this number of candidates.
    pub(super) fn new(candidates: usize) -> Self {
        Self { groups: Vec::new(), draws: (0..candidates).map(|_| None).collect() }
    }

    /// Returns true if no device has used counters yet.
    pub(super) fn is_empty(&self) -> bool {
        self.draws.is_empty()
    }

    fn group(&mut self, pool: &Pool<'a>, state: PoolState<'_>, settings: &Settings) -> usize {
        let by_name = settings.quirks.counters_by_pool_name;
        let known = self.groups.iter().position(|group| {
            group.pool == &*pool.id.pool && (by_name || group.driver == &*pool.id.driver)
        });
        known.unwrap_or_else(|| {
            self.groups.push(Group::new(pool, state, settings));
            self.groups.len() - 1
        })
    }

    /// Computes what a candidate consumes.
    fn prepare(
        &mut self,
        candidate: usize,
        device: &'a Device,
        pool: &Pool<'a>,
        state: PoolState<'_>,
        settings: &Settings,
    ) {
        let group = self.group(pool, state, settings);
        let consumed = device.consumes_counters().iter();
        let amounts = consumed.flat_map(|consumed| {
            consumed.counters.iter().map(|(counter, amount)| (&*consumed.set, &**counter, amount))
        });
        let slots = &mut self.groups[group];
        let amounts =
            amounts.map(|(set, counter, amount)| (slots.slot(set, counter), amount.nanos()));
        let amounts = amounts.collect();
        self.draws[candidate] = Some(Draw { group, amounts });
    }

    /// Takes what a device consumes. Returns false, and takes nothing, if any counter of the pool
    /// would become negative, even one that the device does not consume.
    pub(super) fn take(
        &mut self,
        candidate: usize,
        device: &'a Device,
        pool: &Pool<'a>,
        state: PoolState<'_>,
        settings: &Settings,
    ) -> bool {
        if self.draws[candidate].is_none() {
            self.prepare(candidate, device, pool, state, settings);
        }
        let exceeded = self.consume(candidate, 1);
        if exceeded {
            self.consume(candidate, -1);
        }
        !exceeded
    }

    /// Adds to what is consumed. Returns true if some counter is then exceeded.
    fn consume(&mut self, candidate: usize, sign: i128) -> bool {
        let Some(draw) = &self.draws[candidate] else { return false };
        let group = &mut self.groups[draw.group];
        for (slot, amount) in &draw.amounts {
            group.slots[*slot].consumed += sign * amount;
        }
        group.is_exceeded()
    }

    /// Releases what a device consumes.
    pub(super) fn give_back(&mut self, candidate: usize) {
        self.consume(candidate, -1);
    }
}
