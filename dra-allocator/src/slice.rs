//! `ResourceSlices`: parts of a pool, with their devices and the nodes that they belong to.

use std::sync::Arc;

use crate::device::Device;
use crate::likeness::{DeviceFrame, Frame, Likeness};
use crate::name::{PoolId, QualifiedName};
use crate::node::NodeTarget;
use crate::quantity::Written;

pub use crate::device::CounterSet;

/// The nodes that a slice belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceTarget {
    /// All its devices belong to the same nodes.
    Nodes(NodeTarget),
    /// Each device names its nodes.
    PerDevice,
    /// No known field is set: an extension of a later Kubernetes version.
    Unknown,
}

/// Features used by any device of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// Binding conditions.
    pub(crate) binding_conditions: bool,
    /// Consumption of counters.
    pub(crate) counters: bool,
    /// Compatibility groups.
    pub(crate) compatibility_groups: bool,
}

impl Features {
    pub(crate) fn new(devices: &[Device]) -> Self {
        let mut consumptions = devices.iter().flat_map(Device::consumes_counters);
        Self {
            binding_conditions: devices.iter().any(|d| !d.binding_conditions().is_empty()),
            counters: devices.iter().any(|d| !d.consumes_counters().is_empty()),
            compatibility_groups: consumptions.any(|c| !c.compatibility_groups.is_empty()),
        }
    }
}

/// A `ResourceSlice`.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The object's name. Slices of a pool are searched in bytewise order of their names.
    pub name: Arc<str>,
    /// The pool that it is part of.
    pub pool: PoolId,
    /// The generation of the pool; slices with lower generations are obsolete.
    pub generation: i64,
    /// The number of slices in this generation of the pool.
    pub slice_count: i64,
    /// The nodes that it belongs to.
    pub target: SliceTarget,
    /// True if `perDeviceNodeSelection` is set, even to false.
    pub(crate) has_per_device_selection: bool,
    /// True if two of its devices have the same name.
    pub(crate) has_duplicates: bool,
    /// The features of its devices, cached because each attempt needs them.
    pub(crate) features: Features,
    /// The devices, in search order.
    pub devices: Vec<Device>,
    /// Counters; a slice with counters has no devices.
    pub shared_counters: Vec<CounterSet>,
    /// The node operations that the kubelet skips for these devices (feature
    /// `DRAOptionalNodeOperations`).
    pub skip_node_operations: Vec<Arc<str>>,
    /// What it has in common with other slices.
    pub(crate) likeness: Likeness,
    /// The sequence number of its arrival in the index.
    pub(crate) arrival: u64,
}

impl Slice {
    /// The node, if the slice belongs to a single node.
    pub fn node_name(&self) -> Option<&Arc<str>> {
        match &self.target {
            SliceTarget::Nodes(NodeTarget::Node(name)) => Some(name),
            _ => None,
        }
    }

    /// The sort key for search order (`sortPoolsByID` and `sort.Slice` in `pools_incubating.go`).
    pub(crate) fn order(&self) -> (&PoolId, &Arc<str>) {
        (&self.pool, &self.name)
    }

    /// The slice without names and attribute values; `names` are those of its attributes.
    pub(crate) fn frame(&self, names: Arc<[QualifiedName]>) -> Frame {
        let sets = self.shared_counters.iter().flat_map(|set| &set.counters);
        let amounts = self.devices.iter().flat_map(Device::amounts);
        let amounts = amounts.chain(sets.map(|(_, amount)| *amount)).map(Written);
        Frame {
            driver: self.pool.driver.clone(),
            slice_count: self.slice_count,
            has_per_device_selection: self.has_per_device_selection,
            has_duplicates: self.has_duplicates,
            devices: self.devices.iter().map(DeviceFrame::new).collect(),
            shared_counters: self.shared_counters.clone(),
            skip_node_operations: self.skip_node_operations.clone(),
            names,
            amounts: amounts.collect(),
        }
    }
}
