//! Gathers the pools of a node: which slices count, and in which order.
//!
//! Follows `GatherPools` and `buildPool` in `structured/internal/incubating/pools_incubating.go`. A
//! pool can be incomplete (slices are missing) or invalid (its slices contradict each other).
//! Nothing is allocated from such a pool, but the allocator must know that it exists.

use std::cmp::Ordering;
use std::sync::Arc;
use std::{iter, ptr};

use super::slices::SliceIndex;
use crate::device::Device;
use crate::hash::duplicate;
use crate::name::PoolId;
use crate::node::{Node, SelectorError};
use crate::settings::Settings;
use crate::slice::{CounterSet, Slice, SliceTarget};

/// The pools of a node cannot be determined; Kubernetes then fails the pod on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    /// The node selector of a slice is invalid.
    #[error("failed to perform node selection for slice {slice}")]
    Slice {
        /// The slice.
        slice: String,
        /// The error of the selector.
        source: SelectorError,
    },
    /// The node selector of a device is invalid.
    #[error("failed to perform node selection for device {device} in slice {slice}")]
    Device {
        /// The device.
        device: String,
        /// Its slice.
        slice: String,
        /// The error of the selector.
        source: SelectorError,
    },
}

/// Whether devices can be allocated from a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolHealth {
    Complete,
    /// Slices are missing.
    Incomplete {
        /// The number of slices present.
        there: usize,
        /// The number of slices expected.
        of: i64,
    },
    Invalid(String),
}

/// A pool, with the slices that matter for one node.
#[derive(Clone, Debug)]
pub(crate) struct Pool<'a> {
    pub(crate) id: &'a PoolId,
    pub(crate) health: PoolHealth,
    /// The slices with devices for the node, in search order.
    pub(crate) slices: Vec<&'a Slice>,
    /// The other slices with devices; their devices may consume the same counters.
    pub(crate) elsewhere: Vec<&'a Slice>,
    pub(crate) counter_sets: Vec<&'a CounterSet>,
    /// True if the slices disagree on their number. Kubernetes trusts the first that it meets, and
    /// kube-scheduler lists slices in no defined order.
    pub(crate) is_disputed: bool,
}

/// The pools of a node, in search order.
pub(super) fn gather<'a>(
    index: &'a SliceIndex,
    node: &Node,
    settings: &Settings,
) -> Result<Vec<Pool<'a>>, GatherError> {
    let mut pools: Vec<Pool<'_>> = Vec::new();
    let own = index.place(&node.name).map_or(&[][..], |place| &place.slices);
    if settings.quirks.unordered || settings.quirks.shared_counters_always_relevant {
        for slice in candidates(index, own, node, settings) {
            gather_slice(&mut pools, slice, node, settings)?;
        }
    } else {
        for slice in merged(own, index.shared()) {
            gather_slice(&mut pools, slice, node, settings)?;
        }
    }
    pools.retain_mut(|pool| assemble(index, pool, settings));
    if !settings.quirks.unordered {
        pools.sort_by_key(Pool::has_binding_conditions);
    }
    Ok(pools)
}

fn gather_slice<'a>(
    pools: &mut Vec<Pool<'a>>,
    slice: &'a Slice,
    node: &Node,
    settings: &Settings,
) -> Result<(), GatherError> {
    if counts(slice, settings) && is_relevant(slice, node, settings)? {
        add(group(pools, &slice.pool, settings), slice);
    }
    Ok(())
}

/// Merges two lists that are in search order.
fn merged<'a>(a: &'a [Arc<Slice>], b: &'a [Arc<Slice>]) -> impl Iterator<Item = &'a Slice> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    iter::from_fn(move || {
        let (Some(first), Some(other)) = (a.peek(), b.peek()) else {
            return a.next().or_else(|| b.next()).map(|slice| &**slice);
        };
        let next = if first.order() <= other.order() { a.next() } else { b.next() };
        next.map(|slice| &**slice)
    })
}

/// The slices that may matter for a node, including slices of other nodes with counters. They are
/// in search order, or in order of arrival if the search has none.
fn candidates<'a>(
    index: &'a SliceIndex,
    own: &'a [Arc<Slice>],
    node: &Node,
    settings: &Settings,
) -> Vec<&'a Slice> {
    let shared = index.shared();
    let mut slices: Vec<_> = own.iter().chain(shared).map(|slice| &**slice).collect();
    if settings.quirks.shared_counters_always_relevant {
        let elsewhere = index.counters().iter().map(|slice| &**slice);
        slices.extend(elsewhere.filter(|slice| slice.node_name() != Some(&node.name)));
    }
    if settings.quirks.unordered {
        slices.sort_by_key(|slice| slice.arrival);
    } else if slices.len() > own.len() {
        slices.sort_by(|a, b| a.order().cmp(&b.order()));
    }
    slices
}

/// Returns the slices gathered for a pool so far. In search order, the slices of a pool are
/// adjacent.
fn group<'g, 'a>(
    pools: &'g mut Vec<Pool<'a>>,
    pool: &'a PoolId,
    settings: &Settings,
) -> &'g mut Vec<&'a Slice> {
    let looked_at = if settings.quirks.unordered { pools.len() } else { 1 };
    let known = pools.iter().rev().take(looked_at).position(|known| known.id == pool);
    let index = known.map_or(pools.len(), |back| pools.len() - 1 - back);
    if known.is_none() {
        pools.push(Pool::new(pool));
    }
    &mut pools[index].slices
}

/// Returns true if the allocator considers the slice with these gates.
fn counts(slice: &Slice, settings: &Settings) -> bool {
    let partitions = slice.has_per_device_selection || !slice.shared_counters.is_empty();
    (settings.gates.partitionable_devices || !partitions) && counts_for_groups(slice, settings)
}

/// Without its gate, a slice with compatibility groups is skipped, which makes its pool incomplete.
/// This holds from 1.37; earlier versions have no compatibility groups.
fn counts_for_groups(slice: &Slice, settings: &Settings) -> bool {
    settings.gates.compatibility_groups || !slice.features.compatibility_groups
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

/// Keeps only slices of the highest generation (`addSlice`).
fn add<'a>(slices: &mut Vec<&'a Slice>, slice: &'a Slice) {
    match slices.first().map(|first| slice.generation.cmp(&first.generation)) {
        Some(Ordering::Less) => return,
        Some(Ordering::Greater) => slices.clear(),
        _ => {}
    }
    slices.push(slice);
}

/// The slice that Kubernetes meets first, and trusts if slices of a pool disagree. The node's own
/// slices come before those of several nodes (`NewAllocator`), each group in order of arrival.
fn first_met<'a>(slices: &[&'a Slice], settings: &Settings) -> Option<&'a Slice> {
    let with_counters = settings.quirks.shared_counters_always_relevant;
    slices.iter().copied().min_by_key(|slice| {
        let has_counters = with_counters && !slice.shared_counters.is_empty();
        let is_of_several = slice.node_name().is_none() || has_counters;
        (!settings.quirks.unordered && is_of_several, slice.arrival)
    })
}

/// Completes a pool from its relevant slices. Returns false if a newer generation exists elsewhere.
fn assemble<'a>(index: &'a SliceIndex, pool: &mut Pool<'a>, settings: &Settings) -> bool {
    let Some(first) = first_met(&pool.slices, settings) else { return false };
    pool.is_disputed = pool.slices.iter().any(|slice| slice.slice_count != first.slice_count);
    let complete = usize::try_from(first.slice_count).ok();
    if complete == Some(pool.slices.len()) {
        // Names within one slice were checked when the slice arrived.
        let unsure = if pool.slices.len() > 1 {
            index.pool(pool.id).is_some_and(|pool| pool.repeats)
        } else {
            first.has_duplicates
        };
        pool.build(unsure, settings);
        return true;
    }
    // Slices may be missing only because they belong to other nodes.
    let all = index.pool(pool.id).map_or(&[][..], |pool| &pool.slices);
    if all.iter().any(|slice| slice.generation > first.generation) {
        return false;
    }
    let all = all
        .iter()
        .map(|slice| &**slice)
        .filter(|slice| slice.generation == first.generation && counts_for_groups(slice, settings));
    let all: Vec<_> = all.collect();
    if complete != Some(all.len()) {
        pool.spoil(PoolHealth::Incomplete { there: all.len(), of: first.slice_count });
        return true;
    }
    let elsewhere =
        all.into_iter().filter(|slice| !pool.slices.iter().any(|here| ptr::eq(*here, *slice)));
    pool.elsewhere = elsewhere.collect();
    pool.build(true, settings);
    true
}

fn devices<'a>(slices: &[&'a Slice]) -> impl Iterator<Item = &'a Device> {
    slices.iter().flat_map(|slice| &slice.devices)
}

impl<'a> Pool<'a> {
    fn new(id: &'a PoolId) -> Self {
        let (slices, elsewhere, counter_sets) = Default::default();
        let health = PoolHealth::Complete;
        Pool { id, health, slices, elsewhere, counter_sets, is_disputed: false }
    }

    /// Marks the pool as unusable.
    fn spoil(&mut self, health: PoolHealth) {
        *self = Pool { health, is_disputed: self.is_disputed, ..Pool::new(self.id) };
    }

    /// Separates and checks the slices (`buildPool`). Compares device names only if a name may be
    /// repeated (`unsure`).
    fn build(&mut self, unsure: bool, settings: &Settings) {
        let partitions = settings.gates.partitionable_devices;
        if partitions {
            self.separate_counters();
        } else {
            self.elsewhere.clear();
        }
        let names = devices(&self.slices).map(|device| &device.id.device);
        if let Some(name) = unsure.then(|| duplicate(names)).flatten() {
            return self.spoil(PoolHealth::Invalid(format!("duplicate device name {name}")));
        }
        if partitions && let Err(reason) = self.check_counters() {
            self.spoil(PoolHealth::Invalid(reason));
        }
    }

    fn separate_counters(&mut self) {
        if self.all_slices().all(|slice| slice.shared_counters.is_empty()) {
            return;
        }
        self.counter_sets = self.all_slices().flat_map(|slice| &slice.shared_counters).collect();
        self.slices.retain(|slice| slice.shared_counters.is_empty());
        self.elsewhere.retain(|slice| slice.shared_counters.is_empty());
    }

    fn all_slices(&self) -> impl Iterator<Item = &'a Slice> {
        self.slices.iter().chain(&self.elsewhere).copied()
    }

    fn has_binding_conditions(&self) -> bool {
        self.slices.iter().any(|slice| slice.features.binding_conditions)
    }

    /// All devices of the pool; those of other nodes come last.
    pub(crate) fn all_devices(&self) -> impl Iterator<Item = &'a Device> {
        devices(&self.slices).chain(devices(&self.elsewhere))
    }

    /// Checks that every consumed counter exists exactly once.
    fn check_counters(&self) -> Result<(), String> {
        if let Some(name) = duplicate(self.counter_sets.iter().map(|set| &set.name)) {
            return Err(format!("duplicate counter set name {name}"));
        }
        let drawing = self.all_slices().filter(|slice| slice.features.counters);
        let drawing = drawing.flat_map(|slice| &slice.devices);
        for consumed in drawing.flat_map(Device::consumes_counters) {
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
