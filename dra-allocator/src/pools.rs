//! The pools of a node: which slices count, in which order.
//!
//! `GatherPools` and `buildPool` in `structured/internal/incubating/pools_incubating.go`.
//! A pool may be incomplete (not all its slices are there) or invalid (its slices contradict
//! each other); nothing is allocated from such, but it must be known that they exist.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::device::Device;
use crate::inventory::Inventory;
use crate::name::PoolId;
use crate::node::{Node, SelectorError};
use crate::settings::Settings;
use crate::slice::{CounterSet, Slice, SliceTarget};

/// The pools of a node cannot be told; Kubernetes then fails the pod on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    /// The node selector of a slice.
    #[error("failed to perform node selection for slice {slice}")]
    Slice {
        /// The slice.
        slice: String,
        /// What is wrong with its selector.
        source: SelectorError,
    },
    /// The node selector of a device.
    #[error("failed to perform node selection for device {device} in slice {slice}")]
    Device {
        /// The device.
        device: String,
        /// Its slice.
        slice: String,
        /// What is wrong with its selector.
        source: SelectorError,
    },
}

/// Whether devices can be taken from a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolHealth {
    Complete,
    Incomplete,
    Invalid(String),
}

/// A pool, as far as it matters for a node.
#[derive(Clone, Debug)]
pub(crate) struct Pool<'a> {
    pub(crate) id: PoolId,
    pub(crate) health: PoolHealth,
    /// The slices with devices for the node, in the order of the search.
    pub(crate) slices: Vec<&'a Slice>,
    /// The other slices with devices: they may consume the same counters.
    pub(crate) elsewhere: Vec<&'a Slice>,
    pub(crate) counter_sets: Vec<&'a CounterSet>,
}

/// The pools of a node in the order of the search.
pub(crate) fn gather<'a>(
    inventory: &'a Inventory,
    node: &Node,
    settings: &Settings,
) -> Result<Vec<Pool<'a>>, GatherError> {
    let mut groups: Vec<(&PoolId, Vec<&Slice>)> = Vec::new();
    let mut numbers: HashMap<&PoolId, usize> = HashMap::new();
    for slice in candidates(inventory, node, settings) {
        if counts(slice, settings) && is_relevant(slice, node, settings)? {
            let number = *numbers.entry(&slice.pool).or_insert_with(|| {
                groups.push((&slice.pool, Vec::new()));
                groups.len() - 1
            });
            add(&mut groups[number].1, slice);
        }
    }
    if !settings.quirks.unordered {
        groups.sort_by_key(|(pool, _)| *pool);
    }
    let pools = groups.into_iter();
    let mut pools: Vec<_> =
        pools.filter_map(|(_, slices)| assemble(inventory, slices, settings)).collect();
    if !settings.quirks.unordered {
        pools.sort_by_key(Pool::has_binding_conditions);
    }
    Ok(pools)
}

/// The slices that may be relevant for a node.
fn candidates<'a>(inventory: &'a Inventory, node: &Node, settings: &Settings) -> Vec<&'a Slice> {
    let mut slices: Vec<_> = inventory.slices_for(&node.name).collect();
    if settings.quirks.shared_counters_always_relevant {
        slices.extend(inventory.counter_slices_elsewhere(&node.name));
    }
    if settings.quirks.unordered {
        slices.sort_by_key(|(number, _)| *number);
    }
    slices.into_iter().map(|(_, slice)| slice).collect()
}

/// Whether the allocator looks at the slice at all with these gates.
fn counts(slice: &Slice, settings: &Settings) -> bool {
    let partitions = slice.has_per_device_selection || !slice.shared_counters.is_empty();
    (settings.gates.partitionable_devices || !partitions) && counts_for_groups(slice, settings)
}

/// A slice with compatibility groups does not count without their gate, which makes its pool
/// incomplete (from 1.37; before there were none).
fn counts_for_groups(slice: &Slice, settings: &Settings) -> bool {
    settings.gates.compatibility_groups || !slice.uses_compatibility_groups()
}

fn is_relevant(slice: &Slice, node: &Node, settings: &Settings) -> Result<bool, GatherError> {
    if settings.quirks.shared_counters_always_relevant && !slice.shared_counters.is_empty() {
        return Ok(true);
    }
    match &slice.target {
        SliceTarget::Nodes(nodes) => nodes
            .matches(node)
            .map_err(|source| GatherError::Slice { slice: slice.name.to_string(), source }),
        SliceTarget::PerDevice => has_device_for(slice, node),
        SliceTarget::Unknown => Ok(false),
    }
}

fn has_device_for(slice: &Slice, node: &Node) -> Result<bool, GatherError> {
    for device in &slice.devices {
        let Some(target) = device.target() else { continue };
        let matches = target.matches(node).map_err(|source| GatherError::Device {
            device: device.id.device.to_string(),
            slice: slice.name.to_string(),
            source,
        })?;
        if matches {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Keeps the slices of the highest generation (`addSlice`).
fn add<'a>(slices: &mut Vec<&'a Slice>, slice: &'a Slice) {
    match slices.first().map(|first| slice.generation.cmp(&first.generation)) {
        Some(Ordering::Less) => return,
        Some(Ordering::Greater) => slices.clear(),
        _ => {}
    }
    slices.push(slice);
}

/// A pool of its relevant slices; nothing where a newer generation exists elsewhere.
fn assemble<'a>(
    inventory: &'a Inventory,
    slices: Vec<&'a Slice>,
    settings: &Settings,
) -> Option<Pool<'a>> {
    let first = *slices.first()?;
    let is_complete =
        |count: usize| i64::try_from(count).is_ok_and(|count| count == first.slice_count);
    if is_complete(slices.len()) {
        return Some(build(&first.pool, slices, Vec::new(), settings));
    }
    // Slices may be missing only because they are for other nodes.
    let mut all: Vec<_> = inventory.slices_of_pool(&first.pool).collect();
    all.sort_by_key(|(number, _)| *number);
    if all.iter().any(|(_, slice)| slice.generation > first.generation) {
        return None;
    }
    let all = all
        .into_iter()
        .map(|(_, slice)| slice)
        .filter(|slice| slice.generation == first.generation && counts_for_groups(slice, settings));
    let all: Vec<_> = all.collect();
    if !is_complete(all.len()) {
        return Some(Pool::broken(&first.pool, PoolHealth::Incomplete));
    }
    let known: HashSet<_> = slices.iter().map(|slice| &slice.name).collect();
    let elsewhere = all.into_iter().filter(|slice| !known.contains(&slice.name)).collect();
    Some(build(&first.pool, slices, elsewhere, settings))
}

/// `buildPool`: sorts, separates and checks the slices.
fn build<'a>(
    id: &PoolId,
    mut slices: Vec<&'a Slice>,
    elsewhere: Vec<&'a Slice>,
    settings: &Settings,
) -> Pool<'a> {
    if !settings.quirks.unordered {
        slices.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let partitions = settings.gates.partitionable_devices;
    let is_counters = |slice: &&Slice| partitions && !slice.shared_counters.is_empty();
    let (counters_here, slices): (Vec<_>, Vec<_>) = slices.into_iter().partition(is_counters);
    let (counters_elsewhere, elsewhere): (Vec<_>, Vec<_>) =
        elsewhere.into_iter().partition(is_counters);
    if let Some(name) = duplicate(devices(&slices).map(|device| &device.id.device)) {
        return Pool::broken(id, PoolHealth::Invalid(format!("duplicate device name {name}")));
    }
    let mut pool = Pool { slices, ..Pool::broken(id, PoolHealth::Complete) };
    if !partitions {
        return pool;
    }
    let sets = counters_here.into_iter().chain(counters_elsewhere);
    pool.counter_sets = sets.flat_map(|slice| &slice.shared_counters).collect();
    pool.elsewhere = elsewhere;
    match pool.check_counters() {
        Ok(()) => pool,
        Err(reason) => Pool::broken(id, PoolHealth::Invalid(reason)),
    }
}

fn devices<'a>(slices: &[&'a Slice]) -> impl Iterator<Item = &'a Device> {
    slices.iter().flat_map(|slice| &slice.devices)
}

fn duplicate<'a, T: Hash + Eq>(names: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let mut known = HashSet::new();
    names.into_iter().find(|name| !known.insert(*name))
}

impl<'a> Pool<'a> {
    fn broken(id: &PoolId, health: PoolHealth) -> Self {
        let (slices, elsewhere, counter_sets) = Default::default();
        Pool { id: id.clone(), health, slices, elsewhere, counter_sets }
    }

    fn has_binding_conditions(&self) -> bool {
        devices(&self.slices).any(|device| !device.binding_conditions().is_empty())
    }

    /// All devices of the pool, those of other nodes last.
    pub(crate) fn all_devices(&self) -> impl Iterator<Item = &'a Device> {
        devices(&self.slices).chain(devices(&self.elsewhere))
    }

    /// Every counter that a device consumes must exist, once.
    fn check_counters(&self) -> Result<(), String> {
        if let Some(name) = duplicate(self.counter_sets.iter().map(|set| &set.name)) {
            return Err(format!("duplicate counter set name {name}"));
        }
        for consumed in self.all_devices().flat_map(Device::consumes_counters) {
            let set = self.counter_sets.iter().find(|set| set.name == consumed.set);
            let set = set.ok_or_else(|| format!("counter set {} not found", consumed.set))?;
            for (counter, _) in &consumed.counters {
                if !set.counters.iter().any(|(name, _)| name == counter) {
                    return Err(format!("counter {counter} not found in counter set {}", set.name));
                }
            }
        }
        Ok(())
    }
}
