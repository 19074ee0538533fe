//! NICs for several claims at once: by their bandwidth, as consumable capacity
//! (KEP-5075, on by default since Kubernetes 1.36). Pure.
//!
//! A claim takes as much as it asks for, and one that asks for none takes the
//! whole NIC, so that whoever knows nothing of sharing shares with nobody. A NIC
//! whose rate is not known has nothing to be divided, and stays whole.

use cluster_model::names::{attribute, capacity};
use k8s_openapi::api::resource::v1::{Device, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Whether claims can share a NIC.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Each NIC belongs to one claim.
    #[default]
    None,
    /// Claims share a NIC and divide its bandwidth.
    Bandwidth,
}

impl Sharing {
    /// The device as it is then published. A device has 32 entries, which are
    /// full: the capacity says what the attribute of the rate said.
    #[must_use]
    pub fn apply(self, mut device: Device) -> Device {
        let attributes = device.attributes.get_or_insert_default();
        let rate = attributes.get(attribute::RATE_GBPS).and_then(|rate| rate.int);
        let Some(rate) = rate.filter(|rate| self == Self::Bandwidth && *rate > 0) else {
            return device;
        };
        attributes.remove(attribute::RATE_GBPS);
        device.allow_multiple_allocations = Some(true);
        let bandwidth = DeviceCapacity { value: bits_per_second(rate), request_policy: None };
        device.capacity = Some(BTreeMap::from([(capacity::BANDWIDTH.to_owned(), bandwidth)]));
        device
    }
}

/// As the API server writes it back: the largest unit that leaves a whole number.
fn bits_per_second(gigabits: i64) -> Quantity {
    Quantity(match gigabits % 1000 {
        0 => format!("{}T", gigabits / 1000),
        _ => format!("{gigabits}G"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::attribute::MAX_ENTRIES;
    use crate::decide::decision::decide;
    use crate::decide::slices::{self, Memory};
    use crate::facts::node::NodeIdentity;
    use crate::live;
    use dra_allocator::{
        AllocatedState, Claim, Inventory, Limits, MinorVersion, Outcome, Settings, allocate,
    };
    use k8s_openapi::api::resource::v1::ResourceClaim;
    use serde_json::json;

    const NODE: &str = "n1";

    fn shared(machine: &str) -> Vec<Device> {
        let devices = decide(&live::facts(machine)).devices.into_iter();
        devices.map(|device| Sharing::Bandwidth.apply(device)).collect()
    }

    #[test]
    fn quantities_as_the_server_writes_them() {
        let of = |gigabits| bits_per_second(gigabits).0;
        assert_eq!([400, 800, 1000, 1600, 25].map(of), ["400G", "800G", "1T", "1600G", "25G"]);
    }

    #[test]
    fn a_device_keeps_the_limits_of_the_api() {
        for machine in live::MACHINES {
            for (shared, alone) in shared(machine).iter().zip(decide(&live::facts(machine)).devices)
            {
                assert_eq!(Sharing::None.apply(alone.clone()), alone);
                let entries = |device: &Device| {
                    let attributes = device.attributes.as_ref().map_or(0, BTreeMap::len);
                    attributes + device.capacity.as_ref().map_or(0, BTreeMap::len)
                };
                assert_eq!(entries(shared), entries(&alone));
                assert!(entries(shared) <= MAX_ENTRIES);
            }
        }
    }

    /// How many claims fit on one NIC of 800 Gbit/s that each ask for so much.
    fn claims(asked: Option<&str>) -> usize {
        let devices = shared("aks-gb300").into_iter().take(1).collect::<Vec<_>>();
        let node = NodeIdentity { name: NODE.to_owned(), uid: "n-1".to_owned() };
        let mut slice = slices::plan(&node, &devices, &[], &Memory::default()).create.remove(0);
        slice.metadata.name = Some("one".to_owned());
        let mut inventory = Inventory::new();
        inventory.apply_slice(&slice).unwrap();
        let class = json!({"metadata": {"name": "nic"}, "spec": {}});
        inventory.apply_class(&serde_json::from_value(class).unwrap()).unwrap();
        let mut exactly =
            json!({"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1});
        if let Some(asked) = asked {
            exactly["capacity"] = json!({"requests": {capacity::BANDWIDTH: asked}});
        }
        let claim = json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {
            "requests": [{"name": "nic", "exactly": exactly}]}}});
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        let claims = [Claim::try_from(&claim).unwrap()];
        let settings = Settings::defaults_of(MinorVersion::V1_37);
        let mut state = AllocatedState::default();
        for count in 0.. {
            let limits = Limits::steps(1000);
            match allocate(&inventory, NODE, &claims, &state, &settings, limits).outcome {
                Outcome::Allocated(allocated) => {
                    for result in allocated.into_iter().flat_map(|claim| claim.results) {
                        assert!(result.is_share);
                        state.insert_share(result.device, &result.consumed_capacity);
                    }
                }
                Outcome::NoFit(_) => return count,
                outcome => panic!("{outcome:?}"),
            }
        }
        unreachable!("a NIC is full at last")
    }

    #[test]
    fn claims_divide_the_bandwidth() {
        assert_eq!(claims(Some("200G")), 4);
        assert_eq!(claims(Some("300G")), 2);
        assert_eq!(claims(Some("1T")), 0);
        assert_eq!(claims(None), 1, "one that says nothing takes all");
    }
}
