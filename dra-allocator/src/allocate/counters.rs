//! Counters that devices of a pool share (partitionable devices).
//!
//! `checkAvailableCounters` in `allocator_*.go`: what is available is what the counter sets
//! have, less what allocated devices of the pool take. It may be less than nothing.

use crate::device::Device;
use crate::pools::Pool;
use crate::settings::Settings;
use crate::state::AllocatedState;

/// The counters of all pools during a search.
#[derive(Debug, Default)]
pub(super) struct Counters<'a> {
    groups: Vec<Group<'a>>,
}

/// The counters of a pool; with a quirk those of all pools of one name.
#[derive(Debug)]
struct Group<'a> {
    driver: &'a str,
    pool: &'a str,
    /// Counters by set and name.
    slots: Vec<Slot<'a>>,
    /// Whether what is available was worked out, which happens when the first device asks.
    is_known: bool,
}

#[derive(Debug)]
struct Slot<'a> {
    set: &'a str,
    counter: &'a str,
    available: Option<i128>,
    consumed: i128,
}

/// Whether any part of a device is allocated (`IsDeviceAllocated`).
pub(super) fn is_allocated(device: &Device, state: &AllocatedState, settings: &Settings) -> bool {
    let shared = !settings.quirks.permutations;
    state.contains(&device.id)
        || (shared && (state.is_shared(&device.id) || state.capacity_in_use(&device.id).is_some()))
}

impl<'a> Group<'a> {
    fn slot(&mut self, set: &'a str, counter: &'a str) -> &mut Slot<'a> {
        let known = self.slots.iter().position(|slot| slot.set == set && slot.counter == counter);
        let index = known.unwrap_or_else(|| {
            self.slots.push(Slot { set, counter, available: None, consumed: 0 });
            self.slots.len() - 1
        });
        &mut self.slots[index]
    }

    fn consume(&mut self, device: &'a Device, sign: i128) {
        for consumed in device.consumes_counters() {
            for (counter, amount) in &consumed.counters {
                self.slot(&consumed.set, counter).consumed += sign * amount.nanos();
            }
        }
    }

    fn work_out(&mut self, pool: &Pool<'a>, state: &AllocatedState, settings: &Settings) {
        self.is_known = true;
        for set in &pool.counter_sets {
            for (counter, amount) in &set.counters {
                self.slot(&set.name, counter).available = Some(amount.nanos());
            }
        }
        let allocated = pool.all_devices().filter(|device| is_allocated(device, state, settings));
        for consumed in allocated.flat_map(Device::consumes_counters) {
            for (counter, amount) in &consumed.counters {
                if let Some(available) = &mut self.slot(&consumed.set, counter).available {
                    *available -= amount.nanos();
                }
            }
        }
    }

    fn is_exceeded(&self) -> bool {
        self.slots.iter().any(|slot| slot.available.is_some_and(|left| left < slot.consumed))
    }
}

impl<'a> Counters<'a> {
    fn group(&mut self, device: &'a Device, settings: &Settings) -> &mut Group<'a> {
        let (driver, name): (&str, &str) = (&device.id.driver, &device.id.pool);
        let known = self.groups.iter().position(|group| {
            group.pool == name && (settings.quirks.counters_by_pool_name || group.driver == driver)
        });
        let index = known.unwrap_or_else(|| {
            let slots = Vec::new();
            self.groups.push(Group { driver, pool: name, slots, is_known: false });
            self.groups.len() - 1
        });
        &mut self.groups[index]
    }

    /// Takes what a device consumes; false, and nothing taken, where some counter of the pool
    /// has not enough, be it one that the device consumes or not.
    pub(super) fn take(
        &mut self,
        pool: &Pool<'a>,
        device: &'a Device,
        state: &AllocatedState,
        settings: &Settings,
    ) -> bool {
        let group = self.group(device, settings);
        if !group.is_known {
            group.work_out(pool, state, settings);
        }
        group.consume(device, 1);
        let exceeded = group.is_exceeded();
        if exceeded {
            group.consume(device, -1);
        }
        !exceeded
    }

    /// Gives back what a device consumes.
    pub(super) fn give_back(&mut self, device: &'a Device, settings: &Settings) {
        self.group(device, settings).consume(device, -1);
    }
}
