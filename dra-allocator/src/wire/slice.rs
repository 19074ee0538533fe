//! Converts `ResourceSlices` and their devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1;
use k8s_openapi::jiff::Timestamp;

use super::amounts::{optional_quantity, quantity};
use super::error::WireError;
use super::interner::Interner;
use super::node::selector;
use crate::device::{
    AttributeValue, Attributes, CounterConsumption, Device, DeviceCapacity, DeviceTaint, Extras,
    RequestPolicy, ValidRange,
};
use crate::hash::duplicate;
use crate::likeness::Likeness;
use crate::name::{DeviceId, PoolId, QualifiedName};
use crate::node::NodeTarget;
use crate::quantity::Quantity;
use crate::slice::{CounterSet, Features, Slice, SliceTarget};

pub(crate) fn slice(wire: &v1::ResourceSlice, texts: &mut Interner) -> Result<Slice, WireError> {
    let name = wire.metadata.name.as_ref().ok_or(WireError::NoName("ResourceSlice"))?;
    let spec = &wire.spec;
    let pool = PoolId { driver: texts.text(&spec.driver), pool: texts.text(&spec.pool.name) };
    let devices = spec.devices.iter().flatten();
    let devices = devices.map(|device_wire| {
        let at = format!("ResourceSlice {name}: device {}", device_wire.name);
        device(device_wire, &pool, &at, texts)
    });
    let devices: Vec<Device> = devices.collect::<Result<_, _>>()?;
    let counters = spec.shared_counters.iter().flatten();
    let counters = counters.map(|set| counter_set(set, name, texts));
    let mut slice = Slice {
        shared_counters: counters.collect::<Result<_, _>>()?,
        has_duplicates: duplicate(devices.iter().map(|device| &device.id.device)).is_some(),
        features: Features::new(&devices),
        devices,
        generation: spec.pool.generation,
        slice_count: spec.pool.resource_slice_count,
        target: slice_target(spec, texts),
        has_per_device_selection: spec.per_device_node_selection.is_some(),
        skip_node_operations: texts.texts(spec.skip_node_operations.as_ref()),
        name: texts.text(name),
        pool,
        likeness: Likeness::default(),
        arrival: 0,
    };
    slice.likeness = texts.likeness(&slice);
    Ok(slice)
}

/// The order of the checks is that of `GatherPools`.
fn slice_target(spec: &v1::ResourceSliceSpec, texts: &mut Interner) -> SliceTarget {
    let node = spec.node_name.as_ref();
    let nodes = target(node, spec.all_nodes, spec.node_selector.as_ref(), texts);
    match (nodes, spec.per_device_node_selection) {
        (Some(nodes), _) => SliceTarget::Nodes(nodes),
        (None, Some(true)) => SliceTarget::PerDevice,
        (None, _) => SliceTarget::Unknown,
    }
}

fn target(
    node: Option<&String>,
    all: Option<bool>,
    nodes: Option<&NodeSelector>,
    texts: &mut Interner,
) -> Option<NodeTarget> {
    match (node, all, nodes) {
        (Some(name), _, _) if !name.is_empty() => Some(NodeTarget::Node(texts.text(name))),
        (_, Some(true), _) => Some(NodeTarget::All),
        (_, _, Some(nodes)) => Some(NodeTarget::Selector(selector(nodes, texts))),
        _ => None,
    }
}

fn counter_set(
    wire: &v1::CounterSet,
    slice: &str,
    texts: &mut Interner,
) -> Result<CounterSet, WireError> {
    let at = format!("ResourceSlice {slice}: counter set {}", wire.name);
    Ok(CounterSet { name: texts.text(&wire.name), counters: counters(&wire.counters, &at, texts)? })
}

fn counters(
    wire: &BTreeMap<String, v1::Counter>,
    at: &str,
    texts: &mut Interner,
) -> Result<Vec<(Arc<str>, Quantity)>, WireError> {
    let counters = wire.iter().map(|(name, counter)| {
        Ok((texts.text(name), quantity(&counter.value, &format!("{at}: counter {name}"))?))
    });
    counters.collect()
}

fn device(
    wire: &v1::Device,
    pool: &PoolId,
    at: &str,
    texts: &mut Interner,
) -> Result<Device, WireError> {
    let capacity = wire.capacity.iter().flatten();
    let capacity = capacity.map(|(name, capacity)| {
        let at = format!("{at}: capacity {name}");
        Ok((QualifiedName::new(texts.text(name)), device_capacity(capacity, &at)?))
    });
    let capacity: Vec<_> = capacity.collect::<Result<_, WireError>>()?;
    let extras = extras(wire, at, texts)?;
    Ok(Device {
        id: DeviceId {
            driver: pool.driver.clone(),
            pool: pool.pool.clone(),
            device: texts.text(&wire.name),
        },
        attributes: attributes(wire, texts),
        capacity: capacity.into(),
        extras: (extras != Extras::default()).then(|| Arc::new(extras)),
        taint_times: taint_times(wire),
    })
}

/// The times of a device's taints, if any is known.
fn taint_times(wire: &v1::Device) -> Option<Arc<[Option<Timestamp>]>> {
    let times = wire.taints.iter().flatten();
    let times: Vec<_> = times.map(|taint| taint.time_added.as_ref().map(|time| time.0)).collect();
    times.iter().any(Option::is_some).then(|| times.into())
}

fn attributes(wire: &v1::Device, texts: &mut Interner) -> Attributes {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (name, attribute) in wire.attributes.iter().flatten() {
        names.push(QualifiedName::new(texts.text(name)));
        values.push(value(attribute, texts));
    }
    Attributes::new(texts.schema(names), values.into())
}

/// Lists are checked before scalars (`getAttributeValue`).
fn value(wire: &v1::DeviceAttribute, texts: &mut Interner) -> AttributeValue {
    if let Some(ints) = &wire.ints {
        AttributeValue::Ints(ints.as_slice().into())
    } else if let Some(bools) = &wire.bools {
        AttributeValue::Bools(bools.as_slice().into())
    } else if let Some(strings) = &wire.strings {
        AttributeValue::Strings(texts.texts(Some(strings)).into())
    } else if let Some(versions) = &wire.versions {
        AttributeValue::Versions(texts.texts(Some(versions)).into())
    } else if let Some(int) = wire.int {
        AttributeValue::Int(int)
    } else if let Some(bool) = wire.bool {
        AttributeValue::Bool(bool)
    } else if let Some(string) = &wire.string {
        AttributeValue::String(texts.text(string))
    } else if let Some(version) = &wire.version {
        AttributeValue::Version(texts.text(version))
    } else {
        AttributeValue::Unknown
    }
}

fn device_capacity(wire: &v1::DeviceCapacity, at: &str) -> Result<DeviceCapacity, WireError> {
    let policy = wire.request_policy.as_ref().map(|policy| request_policy(policy, at));
    Ok(DeviceCapacity { value: quantity(&wire.value, at)?, policy: policy.transpose()? })
}

fn request_policy(wire: &v1::CapacityRequestPolicy, at: &str) -> Result<RequestPolicy, WireError> {
    let values = wire.valid_values.iter().flatten().map(|value| quantity(value, at));
    let range = wire.valid_range.as_ref().map(|range| {
        Ok(ValidRange {
            min: quantity(&range.min, at)?,
            max: optional_quantity(range.max.as_ref(), at)?,
            step: optional_quantity(range.step.as_ref(), at)?,
        })
    });
    Ok(RequestPolicy {
        default: optional_quantity(wire.default.as_ref(), at)?,
        valid_values: values.collect::<Result<_, _>>()?,
        valid_range: range.transpose()?,
    })
}

/// A taint without its time.
pub(crate) fn taint(wire: &v1::DeviceTaint, texts: &mut Interner) -> DeviceTaint {
    DeviceTaint {
        key: texts.text(&wire.key),
        value: texts.optional(wire.value.as_ref()),
        effect: texts.text(&wire.effect),
    }
}

fn extras(wire: &v1::Device, at: &str, texts: &mut Interner) -> Result<Extras, WireError> {
    let taints = wire.taints.iter().flatten().map(|wire| taint(wire, texts)).collect();
    let mut consumes = Vec::new();
    for consumption in wire.consumes_counters.iter().flatten() {
        consumes.push(CounterConsumption {
            set: texts.text(&consumption.counter_set),
            counters: counters(&consumption.counters, at, texts)?,
            compatibility_groups: texts.texts(consumption.compatibility_groups.as_ref()),
        });
    }
    let node = wire.node_name.as_ref();
    Ok(Extras {
        taints,
        consumes,
        target: target(node, wire.all_nodes, wire.node_selector.as_ref(), texts),
        binds_to_node: wire.binds_to_node == Some(true),
        binding_conditions: texts.texts(wire.binding_conditions.as_ref()),
        binding_failure_conditions: texts.texts(wire.binding_failure_conditions.as_ref()),
        allow_multiple_allocations: wire.allow_multiple_allocations == Some(true),
    })
}
