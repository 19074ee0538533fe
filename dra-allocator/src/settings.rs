//! Selects the allocator to follow: Kubernetes version, feature gates, and the quirks of its
//! variant.
//!
//! kube-scheduler has three copies of the allocator and uses the first one whose features cover the
//! enabled gates (`structured/allocator.go`). Here their differences, and those between versions,
//! are data: one search reads [`Quirks`].

use std::fmt;

/// A minor version of Kubernetes, from 1.34 to 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinorVersion(u8);

impl MinorVersion {
    /// 1.34, the first with `resource.k8s.io/v1`.
    pub const V1_34: Self = Self(34);
    /// 1.35.
    pub const V1_35: Self = Self(35);
    /// 1.36, the first with a defined order of pools.
    pub const V1_36: Self = Self(36);
    /// 1.37.
    pub const V1_37: Self = Self(37);

    /// The version `1.minor`; `None` if this crate does not know it.
    pub fn new(minor: u8) -> Option<Self> {
        (34..=37).contains(&minor).then_some(Self(minor))
    }

    /// Parses `1.36`, `v1.36`, `1.36.3` and suffixes of distributors (`1.36+`).
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        Self::new(digits.parse().ok()?)
    }

    /// The number after `1.`.
    pub fn minor(self) -> u8 {
        self.0
    }
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

/// The feature gates that affect allocation.
///
/// Names are those of Kubernetes' gates without the prefix `DRA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(clippy::struct_excessive_bools, reason = "feature gates are a set of booleans")]
pub struct FeatureGates {
    /// `DRAAdminAccess`.
    pub admin_access: bool,
    /// `DRAPrioritizedList`: requests with `firstAvailable`.
    pub prioritized_list: bool,
    /// `DRAPartitionableDevices`: shared counters, and node selection per device.
    pub partitionable_devices: bool,
    /// `DRADeviceTaints`.
    pub device_taints: bool,
    /// `DRADeviceBindingConditions`. It has an effect only with `DRAResourceClaimDeviceStatus`.
    pub binding_conditions: bool,
    /// True if `DRAResourceClaimDeviceStatus` is off. It is on by default in every known version.
    pub without_claim_device_status: bool,
    /// `DRAConsumableCapacity`.
    pub consumable_capacity: bool,
    /// `DRAFractionalCapacityRange`.
    pub fractional_capacity_range: bool,
    /// `DRAListTypeAttributes`.
    pub list_type_attributes: bool,
    /// `DRADerivedAttributes`.
    pub derived_attributes: bool,
    /// `DRADeviceCompatibilityGroups`.
    pub compatibility_groups: bool,
    /// `DRAOptionalNodeOperations`.
    pub optional_node_operations: bool,
}

/// Gates for devices in `pkg/features/kube_features.go` of 1.34 to 1.37 that do not affect
/// allocation.
const GATES_OF_OTHERS: &[&str] = &[
    "DRADeviceTaintRules",
    "DRAExtendedResource",
    "DRANodeAllocatableResources",
    "DRAPartitionableDevicesType",
    "DRAResourceClaimGranularStatusAuthorization",
    "DRAResourcePoolStatus",
    "DRASchedulerFilterTimeout",
    "DRAWorkloadResourceClaims",
    "DynamicResourceAllocation",
];

impl FeatureGates {
    /// The gates that are on by default in a version (`pkg/features/kube_features.go`).
    pub fn defaults_of(version: MinorVersion) -> Self {
        let from_1_36 = version >= MinorVersion::V1_36;
        Self {
            admin_access: true,
            prioritized_list: true,
            partitionable_devices: from_1_36,
            device_taints: from_1_36,
            binding_conditions: from_1_36,
            consumable_capacity: from_1_36,
            ..Self::default()
        }
    }

    /// Sets a gate by its Kubernetes name. Returns false if no known version has a device gate with
    /// this name. Gates that do not affect allocation are accepted and have no effect.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        if name == "DRAResourceClaimDeviceStatus" {
            self.without_claim_device_status = !on;
            return true;
        }
        let gate = match name {
            "DRAAdminAccess" => &mut self.admin_access,
            "DRAPrioritizedList" => &mut self.prioritized_list,
            "DRAPartitionableDevices" => &mut self.partitionable_devices,
            "DRADeviceTaints" => &mut self.device_taints,
            "DRADeviceBindingConditions"
            | "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus" => {
                &mut self.binding_conditions
            }
            "DRAConsumableCapacity" => &mut self.consumable_capacity,
            "DRAFractionalCapacityRange" => &mut self.fractional_capacity_range,
            "DRAListTypeAttributes" => &mut self.list_type_attributes,
            "DRADerivedAttributes" => &mut self.derived_attributes,
            "DRADeviceCompatibilityGroups" => &mut self.compatibility_groups,
            "DRAOptionalNodeOperations" => &mut self.optional_node_operations,
            _ => return GATES_OF_OTHERS.contains(&name),
        };
        *gate = on;
        true
    }

    /// Returns true if devices may have binding conditions (`AllocatorFeatures` in
    /// `pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go`).
    pub(crate) fn binds_devices(&self) -> bool {
        self.binding_conditions && !self.without_claim_device_status
    }
}

/// The three copies of the allocator in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The oldest: no pool order, no `distinctAttribute`, permutations within a request.
    Stable,
    /// The one that the default gates of 1.36 and 1.37 select.
    Incubating,
    /// The one with the alpha features.
    Experimental,
}

impl Variant {
    /// The copy that Kubernetes uses with these gates (`NewAllocator` in
    /// `structured/allocator.go`).
    pub fn new(version: MinorVersion, gates: &FeatureGates) -> Self {
        let from_1_37 = version >= MinorVersion::V1_37;
        // The scheduler of 1.36 does not pass on the gate for list attributes.
        let experimental = from_1_37
            && (gates.list_type_attributes
                || gates.derived_attributes
                || gates.compatibility_groups
                || gates.optional_node_operations);
        let incubating = gates.binds_devices()
            || gates.consumable_capacity
            || (from_1_37 && gates.fractional_capacity_range);
        match (experimental, incubating) {
            (true, _) => Self::Experimental,
            (false, true) => Self::Incubating,
            (false, false) => Self::Stable,
        }
    }
}

/// Differences between the allocators of versions and variants.
///
/// The incubating allocator of 1.37 has none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(clippy::struct_excessive_bools, reason = "a set of independent switches")]
pub struct Quirks {
    /// Pools and slices come in no defined order. This crate uses their order of arrival, which is
    /// one of Kubernetes' possible orders, since Go iterates over a small map from a random
    /// position.
    pub unordered: bool,
    /// Within a request, every permutation of devices is tried instead of every combination.
    pub permutations: bool,
    /// `distinctAttribute` is an unknown kind of constraint.
    pub no_distinct_attribute: bool,
    /// The node selector of a result names the node of the device's slice instead of the node under
    /// test.
    pub selector_from_slice: bool,
    /// `distinctAttribute` remembers one value per request (Kubernetes issue 140438).
    pub distinct_by_request: bool,
    /// Counters are shared by pools with the same name, whatever the driver (Kubernetes pull
    /// request 140435).
    pub counters_by_pool_name: bool,
    /// A slice with shared counters counts as one that targets every node.
    pub shared_counters_always_relevant: bool,
    /// A device with a list attribute makes every selector fail.
    pub list_value_is_cel_error: bool,
    /// A request with mode `All` skips devices without free capacity.
    pub all_mode_drops_full_devices: bool,
    /// A configuration that covers all requests still lists them.
    pub config_requests_kept: bool,
    /// A share without recorded capacity does not count as use of its device.
    pub shared_id_not_in_use: bool,
    /// A capacity that cannot be represented makes the device unusable instead of failing; rounded
    /// values are printed in powers of two.
    pub lenient_capacity: bool,
    /// The running intersection of list values is not restored when the search backtracks.
    pub list_intersection_kept: bool,
}

impl Quirks {
    /// The quirks of a variant of a version.
    pub fn new(version: MinorVersion, variant: Variant, gates: &FeatureGates) -> Self {
        let before_1_37 = version < MinorVersion::V1_37;
        let stable = variant == Variant::Stable;
        Self {
            unordered: stable || version < MinorVersion::V1_36,
            permutations: stable,
            no_distinct_attribute: stable,
            selector_from_slice: stable,
            distinct_by_request: before_1_37,
            counters_by_pool_name: before_1_37,
            shared_counters_always_relevant: before_1_37 || stable,
            list_value_is_cel_error: before_1_37 && !gates.list_type_attributes,
            all_mode_drops_full_devices: before_1_37,
            config_requests_kept: before_1_37,
            shared_id_not_in_use: before_1_37,
            lenient_capacity: before_1_37,
            list_intersection_kept: before_1_37,
        }
    }
}

/// The allocator to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The version of kube-scheduler.
    pub version: MinorVersion,
    /// The feature gates of kube-scheduler.
    pub gates: FeatureGates,
    /// The quirks of the variant.
    pub quirks: Quirks,
}

impl Default for Settings {
    /// The newest known version with its default gates.
    fn default() -> Self {
        Self::defaults_of(MinorVersion::V1_37)
    }
}

impl Settings {
    /// A version with its default gates.
    pub fn defaults_of(version: MinorVersion) -> Self {
        Self::with_gates(version, FeatureGates::defaults_of(version))
    }

    /// A version with the given gates and the variant that Kubernetes selects for them.
    pub fn with_gates(version: MinorVersion, gates: FeatureGates) -> Self {
        Self::with_variant(version, gates, Variant::new(version, &gates))
    }

    /// A version with the given gates and variant.
    pub fn with_variant(version: MinorVersion, gates: FeatureGates, variant: Variant) -> Self {
        Self { version, gates, quirks: Quirks::new(version, variant, &gates) }
    }

    /// Returns true if Kubernetes itself gives the same result every time.
    pub fn is_deterministic(&self) -> bool {
        !self.quirks.unordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All gates in `kube_features.go` of 1.34.1, 1.35.0, 1.36.3 and 1.37.1 that affect allocation.
    const GATES: &[&str] = &[
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADerivedAttributes",
        "DRADeviceBindingConditions",
        "DRADeviceCompatibilityGroups",
        "DRADeviceTaints",
        "DRAFractionalCapacityRange",
        "DRAListTypeAttributes",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
    ];

    #[test]
    fn every_gate_of_device_allocation_is_known() {
        for gate in GATES {
            let mut gates = FeatureGates::default();
            assert!(gates.set(gate, true), "{gate}");
            assert_ne!(gates, FeatureGates::default(), "{gate}");
        }
        for gate in GATES_OF_OTHERS {
            let mut gates = FeatureGates::default();
            assert!(gates.set(gate, true), "{gate}");
            assert_eq!(gates, FeatureGates::default(), "{gate}");
        }
        assert!(!FeatureGates::default().set("DRAAdminAcess", true));
    }

    #[test]
    fn binding_conditions_need_the_status_of_devices_in_claims() {
        let status = |on| ("DRAResourceClaimDeviceStatus", on);
        let binding = |on| ("DRADeviceBindingConditions", on);
        let cases = [
            (vec![status(true)], false),
            (vec![binding(true)], true),
            (vec![status(true), binding(true)], true),
            (vec![binding(true), status(false)], false),
            (vec![status(false), binding(true)], false),
            (vec![status(false), binding(true), status(true)], true),
        ];
        for (switched, expected) in cases {
            let mut gates = FeatureGates::default();
            assert!(switched.iter().all(|(name, on)| gates.set(name, *on)));
            assert_eq!(gates.binds_devices(), expected, "{switched:?}");
        }
    }
}
