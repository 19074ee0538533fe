//! The slices of a cluster, by node and by pool.
//!
//! Pools are updated as slices come and go, so that the slices of each node are always ready in
//! search order, together with the node's shape.

use std::sync::Arc;

use crate::hash::{HashMap, HashSet, duplicate};
use crate::likeness::{Shape, ShapeSlice};
use crate::name::PoolId;
use crate::slice::Slice;

/// The slices of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct SliceIndex {
    by_name: HashMap<Arc<str>, Arc<Slice>>,
    places: HashMap<Arc<str>, Place>,
    /// The slices of several nodes, in search order.
    shared: Vec<Arc<Slice>>,
    /// The slices of one node only that hold counters.
    counters: Vec<Arc<Slice>>,
    pools: HashMap<PoolId, PoolSlices>,
    shapes: HashSet<Arc<Shape>>,
    arrivals: u64,
}

/// The slices that belong to one node only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// In search order.
    pub(crate) slices: Vec<Arc<Slice>>,
    /// The node's shape. `None` if a pool of the node also has slices elsewhere, slices of several
    /// generations, or slices that disagree on their number.
    pub(crate) shape: Option<Arc<Shape>>,
}

/// The slices of a pool, of any generation, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolSlices {
    pub(crate) slices: Vec<Arc<Slice>>,
    /// True if a device name occurs twice.
    pub(crate) repeats: bool,
}

impl SliceIndex {
    /// Adds or replaces a slice.
    pub(super) fn apply(&mut self, mut slice: Slice) {
        let kept = self.remove(&slice.name.clone()).map(|old| old.arrival);
        slice.arrival = kept.unwrap_or(self.arrivals);
        self.arrivals += u64::from(kept.is_none());
        let slice = Arc::new(slice);
        match slice.node_name() {
            Some(node) => {
                insert(&mut self.places.entry(node.clone()).or_default().slices, &slice);
                if !slice.shared_counters.is_empty() {
                    insert(&mut self.counters, &slice);
                }
            }
            None => insert(&mut self.shared, &slice),
        }
        self.by_name.insert(slice.name.clone(), slice.clone());
        self.pools.entry(slice.pool.clone()).or_default().add(slice.clone());
        self.reshape(&slice);
    }

    /// The slices of a node, all others of their pools, and those of several nodes.
    pub(super) fn of_node(&self, node: &str) -> Self {
        let own = self.places.get(node).into_iter().flat_map(|place| &place.slices);
        let pools = own.chain(&self.shared).filter_map(|slice| self.pools.get(&slice.pool));
        let mut slices: Vec<&Arc<Slice>> = pools.flat_map(|pool| &pool.slices).collect();
        // In their order of arrival, in which pools keep them.
        slices.sort_unstable_by_key(|slice| slice.arrival);
        slices.dedup_by_key(|slice| slice.arrival);
        let mut found = Self::default();
        for slice in slices {
            found.apply(Slice::clone(slice));
        }
        found
    }

    /// Removes the slice with this name.
    pub(super) fn delete(&mut self, name: &str) {
        if let Some(slice) = self.remove(name) {
            self.reshape(&slice);
        }
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Slice>> {
        let slice = self.by_name.remove(name)?;
        match slice.node_name() {
            Some(node) => {
                if let Some(place) = self.places.get_mut(node) {
                    forget(&mut place.slices, name);
                    if place.slices.is_empty() {
                        self.places.remove(node);
                    }
                }
                forget(&mut self.counters, name);
            }
            None => forget(&mut self.shared, name),
        }
        if let Some(pool) = self.pools.get_mut(&slice.pool) {
            pool.remove(name);
            if pool.slices.is_empty() {
                self.pools.remove(&slice.pool);
            }
        }
        Some(slice)
    }

    /// Recomputes the shapes of all nodes with slices in this slice's pool.
    fn reshape(&mut self, slice: &Slice) {
        let pool = self.pools.get(&slice.pool);
        let others = pool.into_iter().flat_map(|pool| &pool.slices);
        let mut nodes: Vec<_> = others.filter_map(|slice| slice.node_name().cloned()).collect();
        nodes.extend(slice.node_name().cloned());
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            let Some(slices) = self.places.get(&node).map(|place| &*place.slices) else { continue };
            let shape = shape(&node, slices, &self.pools).map(|shape| self.intern(shape));
            if let Some(place) = self.places.get_mut(&node) {
                place.shape = shape;
            }
        }
    }

    fn intern(&mut self, shape: Shape) -> Arc<Shape> {
        if let Some(known) = self.shapes.get(&shape) {
            return known.clone();
        }
        // There are few shapes; unused ones are removed when a new one arrives.
        self.shapes.retain(|known| Arc::strong_count(known) > 1);
        let shape = Arc::new(shape);
        self.shapes.insert(shape.clone());
        shape
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Slice>> {
        self.by_name.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Slice> {
        self.by_name.values().map(|slice| &**slice)
    }

    pub(super) fn place(&self, node: &str) -> Option<&Place> {
        self.places.get(node)
    }

    pub(super) fn shared(&self) -> &[Arc<Slice>] {
        &self.shared
    }

    pub(super) fn counters(&self) -> &[Arc<Slice>] {
        &self.counters
    }

    pub(super) fn pool(&self, pool: &PoolId) -> Option<&PoolSlices> {
        self.pools.get(pool)
    }
}

impl PoolSlices {
    fn add(&mut self, slice: Arc<Slice>) {
        let at = self.slices.partition_point(|known| known.arrival < slice.arrival);
        self.slices.insert(at, slice);
        self.look_for_repeats();
    }

    fn remove(&mut self, name: &str) {
        forget(&mut self.slices, name);
        self.look_for_repeats();
    }

    fn look_for_repeats(&mut self) {
        self.repeats = match &*self.slices {
            [] => false,
            [only] => only.has_duplicates,
            all => {
                let devices = all.iter().flat_map(|slice| &slice.devices);
                duplicate(devices.map(|device| &device.id.device)).is_some()
            }
        };
    }
}

/// The shape of a node. `None` if its result depends on slices of other nodes, on which generation
/// of a pool counts, or on which slice is trusted about their number.
fn shape(node: &str, slices: &[Arc<Slice>], pools: &HashMap<PoolId, PoolSlices>) -> Option<Shape> {
    let mut parts: Vec<ShapeSlice> = Vec::with_capacity(slices.len());
    let mut before: Option<&PoolId> = None;
    for slice in slices {
        let pool = pools.get(&slice.pool)?;
        let is_own = pool.slices.iter().all(|other| {
            other.node_name().is_some_and(|name| **name == *node)
                && other.generation == slice.generation
                && other.slice_count == slice.slice_count
        });
        if !is_own {
            return None;
        }
        let last = parts.last().map_or(0, |part| part.pool);
        let is_next = before.is_some_and(|before| *before != slice.pool);
        parts.push(ShapeSlice {
            pool: last + usize::from(is_next),
            pool_repeats: pool.repeats,
            frame: slice.likeness.frame.clone(),
        });
        before = Some(&slice.pool);
    }
    Some(Shape { slices: parts })
}

fn insert(slices: &mut Vec<Arc<Slice>>, slice: &Arc<Slice>) {
    let at = slices.partition_point(|known| known.order() < slice.order());
    slices.insert(at, slice.clone());
}

fn forget(slices: &mut Vec<Arc<Slice>>, name: &str) {
    slices.retain(|known| *known.name != *name);
}
