//! What nodes have in common.
//!
//! Machines of one kind publish slices that differ only in names (of pools, slices and devices) and
//! in the values of some attributes (UUIDs, addresses). The rest of a slice is its *frame*; the
//! values of one attribute on all its devices are a *column*. Frames and columns are interned, so
//! that two slices are compared by address. The ordered frames of a node are its *shape*.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::device::{AttributeValue, CounterSet, Device, DeviceCapacity, Extras};
use crate::name::QualifiedName;
use crate::quantity::Written;

/// The values of an attribute, one per device; `None` for a device without it.
pub(crate) type Column = Arc<[Option<AttributeValue>]>;

/// A slice without its name and the names of its pool and devices.
#[derive(Clone, Debug)]
pub(crate) struct Likeness {
    pub(crate) frame: Arc<Frame>,
    /// In the order of the frame's names.
    pub(crate) columns: Arc<[Column]>,
    /// The names of the devices; usually the same for all machines of one kind.
    pub(crate) roster: Arc<[Arc<str>]>,
}

/// The likeness of a slice that is not in an index yet.
impl Default for Likeness {
    fn default() -> Self {
        Self { frame: Arc::new(Frame::default()), columns: Arc::default(), roster: Arc::default() }
    }
}

/// A slice without names and attribute values.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) driver: Arc<str>,
    pub(crate) slice_count: i64,
    pub(crate) has_per_device_selection: bool,
    pub(crate) has_duplicates: bool,
    pub(crate) devices: Vec<DeviceFrame>,
    pub(crate) shared_counters: Vec<CounterSet>,
    pub(crate) skip_node_operations: Vec<Arc<str>>,
    /// The names of the attributes of any device, sorted.
    pub(crate) names: Arc<[QualifiedName]>,
    /// All amounts as written, since results show the notation.
    pub(crate) amounts: Vec<Written>,
}

/// A device without its name and attribute values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeviceFrame {
    lists: bool,
    flaw: Option<Arc<str>>,
    capacity: Arc<[(QualifiedName, DeviceCapacity)]>,
    extras: Option<Arc<Extras>>,
}

impl DeviceFrame {
    /// The frame of a device.
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            lists: device.attributes.lists,
            flaw: device.attributes.flaw.clone(),
            capacity: device.capacity.clone(),
            extras: device.extras.clone(),
        }
    }
}

/// Hashes only a part that distinguishes most frames.
impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.driver.hash(state);
        self.devices.len().hash(state);
        self.slice_count.hash(state);
        self.names.len().hash(state);
        self.amounts.hash(state);
    }
}

impl Frame {
    /// The driver of the slice.
    pub(crate) fn driver(&self) -> &str {
        &self.driver
    }

    /// The names of the attributes that its devices have.
    pub(crate) fn names(&self) -> &[QualifiedName] {
        &self.names
    }
}

/// The names of the attributes of any device of a slice, sorted.
pub(crate) fn names(devices: &[Device]) -> Vec<QualifiedName> {
    let mut names: Vec<_> =
        devices.iter().flat_map(|device| device.attributes.names.iter().cloned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The values of one attribute; `number` is its index among the frame's names.
pub(crate) fn column(
    devices: &[Device],
    names: &Arc<[QualifiedName]>,
    number: usize,
) -> Vec<Option<AttributeValue>> {
    devices
        .iter()
        .map(|device| {
            if Arc::ptr_eq(&device.attributes.names, names) {
                return device.attributes.values.get(number).cloned();
            }
            device.attributes.get(names[number].as_str()).cloned()
        })
        .collect()
}

/// A slice as part of a shape.
#[derive(Clone, Debug)]
pub(crate) struct ShapeSlice {
    /// The index of its pool among the node's pools.
    pub(crate) pool: usize,
    /// True if a device name occurs twice in its pool.
    pub(crate) pool_repeats: bool,
    pub(crate) frame: Arc<Frame>,
}

/// Frames are interned, so equal frames have the same address.
impl PartialEq for ShapeSlice {
    fn eq(&self, other: &Self) -> bool {
        self.pool == other.pool
            && self.pool_repeats == other.pool_repeats
            && Arc::ptr_eq(&self.frame, &other.frame)
    }
}

impl Eq for ShapeSlice {}

impl Hash for ShapeSlice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.pool, Arc::as_ptr(&self.frame)).hash(state);
    }
}

/// What nodes have in common whose own devices differ only in names and attribute values.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) slices: Vec<ShapeSlice>,
}
