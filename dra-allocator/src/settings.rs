//! Which allocator runs: the Kubernetes version, its feature gates, and what is peculiar to it.
//!
//! kube-scheduler has three copies of the allocator and takes the first whose features cover
//! the enabled ones (`structured/allocator.go`). What differs between them and between
//! versions is data here: one search reads [`Quirks`], there are no copies of it.

use std::fmt;

/// A minor version of Kubernetes, from 1.34 to 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinorVersion(u8);

impl MinorVersion {
    /// 1.34: `resource.k8s.io/v1` exists from here.
    pub const V1_34: Self = Self(34);
    /// 1.35.
    pub const V1_35: Self = Self(35);
    /// 1.36: from here the order of pools is defined.
    pub const V1_36: Self = Self(36);
    /// 1.37.
    pub const V1_37: Self = Self(37);

    /// The version `1.minor`, if it is one that this crate knows.
    pub fn new(minor: u8) -> Option<Self> {
        (34..=37).contains(&minor).then_some(Self(minor))
    }

    /// Reads `1.36`, `v1.36`, `1.36.3` and the like, with what distributors add (`1.36+`).
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

/// The feature gates that change what the allocator does.
///
/// Names are those of Kubernetes' gates without the prefix `DRA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(clippy::struct_excessive_bools, reason = "feature gates are a set of booleans")]
pub struct FeatureGates {
    /// `DRAAdminAccess`.
    pub admin_access: bool,
    /// `DRAPrioritizedList`: requests with `firstAvailable`.
    pub prioritized_list: bool,
    /// `DRAPartitionableDevices`: shared counters and selection of nodes per device.
    pub partitionable_devices: bool,
    /// `DRADeviceTaints`.
    pub device_taints: bool,
    /// `DRADeviceBindingConditions`, which has an effect with `DRAResourceClaimDeviceStatus` only.
    pub binding_conditions: bool,
    /// `DRAResourceClaimDeviceStatus` is off. It is on by default in every version known here.
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

/// The gates of device allocation in `pkg/features/kube_features.go` of 1.34 to 1.37 that the
/// allocator does not ask.
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
    /// The gates that a version has on when nobody says otherwise
    /// (`pkg/features/kube_features.go`).
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

    /// Switches a gate by its name in Kubernetes; false where no version known here has a gate of
    /// this name for device allocation. Gates that the allocator does not ask change nothing.
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

    /// Whether devices may have conditions before a pod is bound (`AllocatorFeatures` in
    /// `pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go`).
    pub(crate) fn binds_devices(&self) -> bool {
        self.binding_conditions && !self.without_claim_device_status
    }
}

/// The three copies of the allocator in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The oldest: no order of pools, no `distinctAttribute`, permutations inside a request.
    Stable,
    /// What the default gates of 1.36 and 1.37 choose.
    Incubating,
    /// With the alpha features.
    Experimental,
}

impl Variant {
    /// The copy that Kubernetes runs with these gates
    /// (`NewAllocator` in `structured/allocator.go`).
    pub fn of(version: MinorVersion, gates: &FeatureGates) -> Self {
        let from_1_37 = version >= MinorVersion::V1_37;
        // The scheduler of 1.36 does not pass the gate of list attributes on.
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

/// What a variant of a version does that others do not.
///
/// All false is the incubating allocator of 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(clippy::struct_excessive_bools, reason = "a set of independent switches")]
pub struct Quirks {
    /// Pools and slices come in no defined order. We take both as they came: one of the orders
    /// that Kubernetes may take, since Go walks a small map from a random place on.
    pub unordered: bool,
    /// Within a request every order of devices is tried, not only every combination.
    pub permutations: bool,
    /// `distinctAttribute` is an unknown kind of constraint.
    pub no_distinct_attribute: bool,
    /// The node selector of a result names the node of the device's slice, not the node asked.
    pub selector_from_slice: bool,
    /// `distinctAttribute` remembers one value for each request (Kubernetes issue 140438).
    pub distinct_by_request: bool,
    /// Counters are kept by pool name, whatever the driver (Kubernetes pull request 140435).
    pub counters_by_pool_name: bool,
    /// A slice with shared counters is taken as one that targets every node.
    pub shared_counters_always_relevant: bool,
    /// A device with a list attribute makes every selector fail.
    pub list_value_is_cel_error: bool,
    /// A request for all devices leaves out devices without room now.
    pub all_mode_drops_full_devices: bool,
    /// A configuration that covers all requests still lists them.
    pub config_requests_kept: bool,
    /// A share without a record of capacity does not make its device one in use.
    pub shared_id_not_in_use: bool,
    /// A capacity that cannot be represented makes the device unusable, and is no error; what
    /// is rounded is printed in powers of two.
    pub lenient_capacity: bool,
    /// The running intersection of list values is not restored when the search goes back.
    pub list_intersection_kept: bool,
}

impl Quirks {
    /// What is peculiar to a variant of a version.
    pub fn of(version: MinorVersion, variant: Variant, gates: &FeatureGates) -> Self {
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

/// The allocator to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The version of kube-scheduler.
    pub version: MinorVersion,
    /// The feature gates of kube-scheduler.
    pub gates: FeatureGates,
    /// What is peculiar to the variant that runs.
    pub quirks: Quirks,
}

impl Settings {
    /// A version with its default gates.
    pub fn defaults_of(version: MinorVersion) -> Self {
        Self::with_gates(version, FeatureGates::defaults_of(version))
    }

    /// A version with given gates; the variant is the one that Kubernetes would choose.
    pub fn with_gates(version: MinorVersion, gates: FeatureGates) -> Self {
        Self::with_variant(version, gates, Variant::of(version, &gates))
    }

    /// A given variant, whatever the gates would choose.
    pub fn with_variant(version: MinorVersion, gates: FeatureGates, variant: Variant) -> Self {
        Self { version, gates, quirks: Quirks::of(version, variant, &gates) }
    }

    /// Whether Kubernetes itself would answer the same twice.
    pub fn is_deterministic(&self) -> bool {
        !self.quirks.unordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All gates of device allocation in `kube_features.go` of 1.34.1, 1.35.0, 1.36.3 and 1.37.1
    /// that change what the allocator does.
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
