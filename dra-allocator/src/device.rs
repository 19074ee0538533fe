//! Devices as `ResourceSlices` publish them.
//!
//! Follows `Device` in `k8s.io/api/resource/v1/types.go`, with shared strings. [`crate::slice`]
//! says which node a device belongs to, [`crate::state`] whether it is free.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::name::{DeviceId, QualifiedName};
use crate::node::NodeTarget;
use crate::quantity::Quantity;

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttributeValue {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    String(Arc<str>),
    /// A semantic version, as a string.
    Version(Arc<str>),
    /// A list of booleans.
    Bools(Arc<[bool]>),
    /// A list of integers.
    Ints(Arc<[i64]>),
    /// A list of strings.
    Strings(Arc<[Arc<str>]>),
    /// A list of semantic versions, as strings.
    Versions(Arc<[Arc<str>]>),
    /// A kind of value that this crate does not know, from a later Kubernetes version.
    Unknown,
}

impl AttributeValue {
    /// Returns true if the value is a list (feature `DRAListTypeAttributes`).
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Bools(_) | Self::Ints(_) | Self::Strings(_) | Self::Versions(_))
    }

    /// The values by which constraints match with the feature `DRAListTypeAttributes`: those of a list,
    /// or the value itself (`attributeAsSet`).
    pub fn elements(&self) -> Vec<Self> {
        match self {
            Self::Bools(values) => values.iter().map(|value| Self::Bool(*value)).collect(),
            Self::Ints(values) => values.iter().map(|value| Self::Int(*value)).collect(),
            Self::Strings(values) => values.iter().cloned().map(Self::String).collect(),
            Self::Versions(values) => values.iter().cloned().map(Self::Version).collect(),
            Self::Unknown => Vec::new(),
            Self::Bool(_) | Self::Int(_) | Self::String(_) | Self::Version(_) => vec![self.clone()],
        }
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::String(value) => write!(f, "{value:?}"),
            Self::Version(value) => write!(f, "version {value}"),
            Self::Bools(values) => write!(f, "{values:?}"),
            Self::Ints(values) => write!(f, "{values:?}"),
            Self::Strings(values) => write!(f, "{values:?}"),
            Self::Versions(values) => write!(f, "versions {values:?}"),
            Self::Unknown => f.write_str("a value of an unknown kind"),
        }
    }
}

/// The attributes of a device, by name.
///
/// Names and values are separate, so that devices of one kind share their list of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attributes {
    /// Sorted.
    pub(crate) names: Arc<[QualifiedName]>,
    pub(crate) values: Arc<[AttributeValue]>,
    /// True if any value is a list.
    pub(crate) lists: bool,
    /// Why CEL cannot read the attributes. Kubernetes converts all attributes before it evaluates
    /// an expression, so that one bad value fails every selector (`DeviceMatches` in
    /// `cel/compile.go`).
    pub(crate) flaw: Option<Arc<str>>,
}

impl Attributes {
    /// Creates attributes from names and values in the same order.
    pub(crate) fn new(names: Arc<[QualifiedName]>, values: Arc<[AttributeValue]>) -> Self {
        let lists = values.iter().any(AttributeValue::is_list);
        let mut pairs = names.iter().zip(values.iter());
        let flaw = pairs.find_map(|(name, value)| {
            value_flaw(value).map(|flaw| format!("attribute {name}: {flaw}").into())
        });
        Self { names, values, lists, flaw }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&AttributeValue> {
        let index = self.names.binary_search_by(|known| known.as_str().cmp(name)).ok()?;
        self.values.get(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&QualifiedName, &AttributeValue)> {
        self.names.iter().zip(self.values.iter())
    }
}

fn value_flaw(value: &AttributeValue) -> Option<String> {
    match value {
        AttributeValue::Unknown => Some("unsupported attribute value".to_owned()),
        AttributeValue::Version(text) => version_flaw(text),
        AttributeValue::Versions(texts) => texts.iter().find_map(version_flaw),
        _ => None,
    }
}

fn version_flaw(text: &Arc<str>) -> Option<String> {
    let error = semver::Version::parse(text).err()?;
    Some(format!("parse semantic version: {error}"))
}

/// A capacity of a device, and the amounts that may be requested from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCapacity {
    /// The amount.
    pub value: Quantity,
    /// The amounts that may be requested if the device can be shared.
    pub policy: Option<RequestPolicy>,
}

impl DeviceCapacity {
    /// What a request takes that does not name the capacity.
    pub fn by_default(&self) -> Quantity {
        let default = self.policy.as_ref().and_then(|policy| policy.default);
        default.unwrap_or(self.value)
    }

    /// The most that one request can take.
    pub fn most(&self) -> Quantity {
        let of_policy = self.policy.as_ref().and_then(|policy| match &policy.valid_range {
            Some(range) => range.max,
            None => policy.valid_values.last().copied(),
        });
        of_policy.map_or(self.value, |most| most.min(self.value))
    }

    /// The least that a request takes; `None` if it can take any amount.
    pub fn least(&self) -> Option<Quantity> {
        let policy = self.policy.as_ref()?;
        let named = match &policy.valid_range {
            Some(range) => Some(range.min),
            None => policy.valid_values.first().copied(),
        };
        named.into_iter().chain([self.by_default()]).min()
    }

    /// Returns true if nothing of the capacity can be allocated beside this amount.
    pub fn is_used_up_by(&self, amount: &Quantity) -> bool {
        let left = self.value.nanos() - amount.nanos();
        self.least().map_or(left <= 0, |least| left < least.nanos())
    }

    /// Returns true if the capacity is enough for this amount twice.
    pub fn is_enough_for_two(&self, amount: &Quantity) -> bool {
        2 * amount.nanos() <= self.value.nanos()
    }

    fn amounts(&self) -> impl Iterator<Item = Quantity> {
        let policy = self.policy.iter();
        let of_policy = policy.flat_map(|policy| {
            let range = policy.valid_range.iter();
            let range = range.flat_map(|range| [Some(range.min), range.max, range.step]);
            policy
                .default
                .into_iter()
                .chain(policy.valid_values.iter().copied())
                .chain(range.flatten())
        });
        [self.value].into_iter().chain(of_policy)
    }
}

/// The amounts that may be requested from a capacity (`CapacityRequestPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPolicy {
    /// The amount taken by a request that names none.
    pub default: Option<Quantity>,
    /// The valid amounts, ascending.
    pub valid_values: Vec<Quantity>,
    /// The range of valid amounts.
    pub valid_range: Option<ValidRange>,
}

/// A range of amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidRange {
    /// The minimum.
    pub min: Quantity,
    /// The maximum.
    pub max: Option<Quantity>,
    /// The step between two valid amounts, counted from `min`.
    pub step: Option<Quantity>,
}

/// A taint of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceTaint {
    /// The key.
    pub key: Arc<str>,
    /// The value; empty if not set.
    pub value: Arc<str>,
    /// The effect on pods that do not tolerate it.
    pub effect: Arc<str>,
}

impl DeviceTaint {
    /// Returns true if the taint prevents allocation. Unknown effects do not.
    pub fn prevents_allocation(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

impl fmt::Display for DeviceTaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect)
        }
    }
}

/// A set of counters that the devices of a pool share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSet {
    /// The name, unique in the pool.
    pub name: Arc<str>,
    /// The counters and their amounts.
    pub counters: Vec<(Arc<str>, Quantity)>,
}

/// What a device consumes from one of its pool's counter sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterConsumption {
    /// The counter set.
    pub set: Arc<str>,
    /// The amounts, by counter.
    pub counters: Vec<(Arc<str>, Quantity)>,
    /// The compatibility groups of the device (feature `DRADeviceCompatibilityGroups`).
    pub compatibility_groups: Vec<Arc<str>>,
}

/// Fields that few devices set.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Extras {
    pub(crate) taints: Vec<DeviceTaint>,
    pub(crate) consumes: Vec<CounterConsumption>,
    /// The nodes of this device, if its slice sets nodes per device.
    pub(crate) target: Option<NodeTarget>,
    pub(crate) binds_to_node: bool,
    pub(crate) binding_conditions: Vec<Arc<str>>,
    pub(crate) binding_failure_conditions: Vec<Arc<str>>,
    pub(crate) allow_multiple_allocations: bool,
}

/// A device of a `ResourceSlice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub(crate) id: DeviceId,
    pub(crate) attributes: Attributes,
    /// Sorted by name.
    pub(crate) capacity: Arc<[(QualifiedName, DeviceCapacity)]>,
    pub(crate) extras: Option<Arc<Extras>>,
    /// The times at which its taints were added, in their order. Not a part of `extras`, which
    /// devices of other nodes share.
    pub(crate) taint_times: Option<Arc<[Option<Timestamp>]>>,
}

impl Device {
    /// A device without attributes, capacities and taints.
    pub fn bare(id: DeviceId) -> Self {
        let attributes = Attributes::new(Arc::default(), Arc::default());
        Self { id, attributes, capacity: Arc::default(), extras: None, taint_times: None }
    }

    /// The device's driver, pool and name.
    pub fn id(&self) -> &DeviceId {
        &self.id
    }

    /// Returns the attribute with a fully qualified name. Without a published attribute of that
    /// name, a name whose domain is the driver's also matches the name without domain
    /// (`lookupStaticAttribute`).
    pub fn attribute(&self, name: &str) -> Option<&AttributeValue> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            if domain == &*self.id.driver { self.attributes.get(id) } else { None }
        })
    }

    /// Returns the device without the attribute published under this name.
    #[must_use]
    pub fn without_attribute(&self, name: &str) -> Self {
        let kept = self.attributes.iter().filter(|(known, _)| known.as_str() != name);
        let (names, values): (Vec<_>, Vec<_>) =
            kept.map(|(known, value)| (known.clone(), value.clone())).unzip();
        Self { attributes: Attributes::new(names.into(), values.into()), ..self.clone() }
    }

    /// Returns the device with this value of the attribute, which is published under this name.
    #[must_use]
    pub fn with_attribute(&self, name: &str, value: AttributeValue) -> Self {
        let published = self.attributes.iter().map(|(known, value)| (known.clone(), value.clone()));
        let mut all: BTreeMap<_, _> = published.collect();
        all.insert(QualifiedName::new(name), value);
        let (names, values): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        Self { attributes: Attributes::new(names.into(), values.into()), ..self.clone() }
    }

    /// All attributes, sorted by published name.
    pub fn attributes(&self) -> impl Iterator<Item = (&QualifiedName, &AttributeValue)> {
        self.attributes.iter()
    }

    /// All capacities, sorted by published name.
    pub fn capacity(&self) -> &[(QualifiedName, DeviceCapacity)] {
        &self.capacity
    }

    /// The taints in the slice, then those of `DeviceTaintRules` by the names of the rules.
    pub fn taints(&self) -> &[DeviceTaint] {
        self.extras.as_ref().map_or(&[], |extras| &extras.taints)
    }

    /// The taints, with the time at which each was added if it is known.
    pub fn timed_taints(&self) -> impl Iterator<Item = (&DeviceTaint, Option<Timestamp>)> {
        let times = self.taint_times.as_deref().unwrap_or_default();
        let times = times.iter().copied().chain(iter::repeat(None));
        self.taints().iter().zip(times)
    }

    /// Returns the device with these taints instead of its own.
    #[must_use]
    pub(crate) fn with_taints(&self, taints: Vec<(DeviceTaint, Option<Timestamp>)>) -> Self {
        let (taints, times): (Vec<_>, Vec<_>) = taints.into_iter().unzip();
        let is_timed = times.iter().any(Option::is_some);
        let extras = self.extras.as_deref().cloned().unwrap_or_default();
        let extras = Extras { taints, ..extras };
        Self {
            extras: (extras != Extras::default()).then(|| Arc::new(extras)),
            taint_times: is_timed.then(|| times.into()),
            ..self.clone()
        }
    }

    /// Returns the device with another value of a published attribute; without a change if it does
    /// not publish the attribute.
    #[must_use]
    pub(crate) fn with_value(&self, name: &str, value: &AttributeValue) -> Self {
        let values = self
            .attributes
            .iter()
            .map(|(known, own)| if known.as_str() == name { value.clone() } else { own.clone() });
        let values = values.collect();
        let attributes = Attributes::new(self.attributes.names.clone(), values);
        Self { attributes, ..self.clone() }
    }

    /// Returns true if several claims may hold the device at once.
    pub fn allows_multiple_allocations(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.allow_multiple_allocations)
    }

    /// What the device consumes from shared counters.
    pub fn consumes_counters(&self) -> &[CounterConsumption] {
        self.extras.as_ref().map_or(&[], |extras| &extras.consumes)
    }

    /// The conditions that must hold before a pod with this device is bound.
    pub fn binding_conditions(&self) -> &[Arc<str>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.binding_conditions)
    }

    /// The conditions that end the wait for `binding_conditions`.
    pub fn binding_failure_conditions(&self) -> &[Arc<str>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.binding_failure_conditions)
    }

    /// All amounts of the device, in a fixed order.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = Quantity> {
        let capacity = self.capacity.iter().flat_map(|(_, capacity)| capacity.amounts());
        let consumed = self.consumes_counters().iter().flat_map(|consumed| &consumed.counters);
        capacity.chain(consumed.map(|(_, amount)| *amount))
    }

    pub(crate) fn binds_to_node(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.binds_to_node)
    }

    pub(crate) fn target(&self) -> Option<&NodeTarget> {
        self.extras.as_ref().and_then(|extras| extras.target.as_ref())
    }
}
