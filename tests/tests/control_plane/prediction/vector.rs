//! Writes a case as a vector of the conformance format.

use std::collections::BTreeMap;

use dra_allocator::ClaimAllocation;
use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
};
use serde_json::json;

/// Replaces the random ID of a share.
pub(super) const SHARE: &str = "SHARE";

/// The features of the default gates of 1.37.
const FEATURES: [&str; 6] = [
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
];

/// A case: the input of the scheduler, and its result.
pub(super) struct Vector<'a> {
    pub(super) node: &'a Node,
    pub(super) slices: &'a [ResourceSlice],
    pub(super) classes: &'a [DeviceClass],
    pub(super) claims: &'a [ResourceClaim],
    /// The claims that were allocated before.
    pub(super) in_use: &'a [ResourceClaim],
    pub(super) results: &'a [AllocationResult],
}

impl Vector<'_> {
    /// The case, as a line.
    pub(super) fn line(&self) -> String {
        let (mut devices, mut shares) = (Vec::new(), Vec::new());
        let mut capacity: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
        let allocations = self.in_use.iter().filter_map(|claim| claim.status.as_ref());
        let allocations =
            allocations.filter_map(|status| status.allocation.as_ref()?.devices.as_ref());
        for result in allocations.flat_map(|devices| devices.results.iter().flatten()) {
            let id = format!("{}/{}/{}", result.driver, result.pool, result.device);
            let Some(share) = &result.share_id else {
                devices.push(id);
                continue;
            };
            shares.push(format!("{id}/{share}"));
            for (name, taken) in result.consumed_capacity.iter().flatten() {
                // The amounts that are drawn are small whole numbers.
                let sum = capacity.entry(id.clone()).or_default().entry(name.clone()).or_default();
                *sum += taken.0.parse::<i64>().unwrap_or_default();
            }
        }
        let texts = |amounts: BTreeMap<String, i64>| -> BTreeMap<String, String> {
            amounts.into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
        };
        let capacity: BTreeMap<_, _> =
            capacity.into_iter().map(|(id, amounts)| (id, texts(amounts))).collect();
        let case = json!({
            "kubernetes": "1.37.1",
            "channel": "incubating",
            "features": FEATURES,
            "node": self.node,
            "slices": self.slices,
            "classes": self.classes,
            "claims": self.claims,
            "allocatedDevices": devices,
            "allocatedShared": shares,
            "aggregatedCapacity": capacity,
            "results": self.results,
            "error": "",
            "numAllocateOne": -1,
        });
        case.to_string()
    }
}

/// A prediction as Kubernetes would write it.
pub(super) fn allocation(ours: &ClaimAllocation) -> AllocationResult {
    let mut allocation = AllocationResult::from(ours);
    let results = allocation.devices.iter_mut().flat_map(|d| d.results.iter_mut().flatten());
    for (result, ours) in results.zip(&ours.results) {
        result.share_id = ours.is_share.then(|| SHARE.to_owned());
    }
    allocation
}
