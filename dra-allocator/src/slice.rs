//! `ResourceSlices`: the devices of a pool, in parts, with the nodes that they belong to.

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
    /// Each device says it by itself.
    PerDevice,
    /// Nothing that is known was set: some extension of a later Kubernetes.
    Unknown,
}

/// What some device of a slice has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// Conditions before a pod is bound.
    pub(crate) binding_conditions: bool,
    /// It consumes counters.
    pub(crate) counters: bool,
    /// It declares compatibility groups.
    pub(crate) compatibility_groups: bool,
}

impl Features {
    pub(crate) fn of(devices: &[Device]) -> Self {
        let consumptions = || devices.iter().flat_map(Device::consumes_counters);
        Self {
            binding_conditions: devices.iter().any(|d| !d.binding_conditions().is_empty()),
            counters: consumptions().next().is_some(),
            compatibility_groups: consumptions().any(|c| !c.compatibility_groups.is_empty()),
        }
    }
}

/// A `ResourceSlice`.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The object's name. Within a pool slices are searched in its bytewise order.
    pub name: Arc<str>,
    /// The pool that it is part of.
    pub pool: PoolId,
    /// The generation of the pool; lower ones are obsolete.
    pub generation: i64,
    /// How many slices the pool has in this generation.
    pub slice_count: i64,
    /// The nodes that it belongs to.
    pub target: SliceTarget,
    /// Whether `perDeviceNodeSelection` is set at all, true or not.
    pub(crate) has_per_device_selection: bool,
    /// Whether two of its devices have the same name.
    pub(crate) has_duplicates: bool,
    /// What its devices have, looked up once: each attempt asks for it.
    pub(crate) features: Features,
    /// The devices, in the order in which they are tried.
    pub devices: Vec<Device>,
    /// Counters, in slices that hold no devices.
    pub shared_counters: Vec<CounterSet>,
    /// What kubelet leaves out for these devices (feature `DRAOptionalNodeOperations`).
    pub skip_node_operations: Vec<Arc<str>>,
    /// What it has in common with others.
    pub(crate) likeness: Likeness,
    /// When it came into the index, as a number.
    pub(crate) arrival: u64,
}

impl Slice {
    /// The node that the slice belongs to alone.
    pub fn node_name(&self) -> Option<&Arc<str>> {
        match &self.target {
            SliceTarget::Nodes(NodeTarget::Node(name)) => Some(name),
            _ => None,
        }
    }

    /// Slices are searched in this order (`sortPoolsByID` and `sort.Slice` in
    /// `pools_incubating.go`).
    pub(crate) fn order(&self) -> (&PoolId, &Arc<str>) {
        (&self.pool, &self.name)
    }

    /// The slice but for names and the values of attributes, of which these are the names.
    pub(crate) fn frame(&self, names: Arc<[QualifiedName]>) -> Frame {
        let sets = self.shared_counters.iter().flat_map(|set| &set.counters);
        let amounts = self.devices.iter().flat_map(Device::amounts);
        let amounts = amounts.chain(sets.map(|(_, amount)| *amount)).map(Written);
        Frame {
            driver: self.pool.driver.clone(),
            slice_count: self.slice_count,
            has_per_device_selection: self.has_per_device_selection,
            has_duplicates: self.has_duplicates,
            devices: self.devices.iter().map(DeviceFrame::of).collect(),
            shared_counters: self.shared_counters.clone(),
            skip_node_operations: self.skip_node_operations.clone(),
            names,
            amounts: amounts.collect(),
        }
    }
}
