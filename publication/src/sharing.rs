//! Lets several claims share a NIC: by bandwidth, by a number of claims, or by both, as
//! consumable capacity (KEP-5075, on by default since Kubernetes 1.36). Pure.
//!
//! A claim gets the capacity that it requests. A claim without a capacity request gets the
//! whole NIC, so that a user who does not know of sharing shares with nobody. A NIC with an
//! unknown rate cannot be shared by bandwidth.

use crate::attribute::Attributes;
use crate::filter::Filter;
use crate::nic::NicState;
use cluster_model::names::capacity;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Whether claims can share a NIC, and by which capacity.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Each NIC belongs to one claim.
    #[default]
    None,
    /// Claims share a NIC and divide its bandwidth.
    Bandwidth,
    /// Up to a fixed number of claims share a NIC.
    Count,
}

/// Which NICs claims can share, and how.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SharingArgs {
    /// Whether claims can share a NIC: by its bandwidth, or by a number of claims, as consumable
    /// capacity dranet.io/bandwidth and dranet.io/shares
    #[arg(long, value_enum, default_value_t = Sharing::None, requires_if("count", "rdma_hca_max"))]
    pub sharing: Sharing,
    /// Maximum number of claims that can share a NIC; with --sharing=bandwidth an additional
    /// limit
    #[arg(long, value_name = "CLAIMS")]
    pub rdma_hca_max: Option<NonZeroU32>,
    /// Which NICs can be shared: a CEL expression as for --filter; empty selects all. If the
    /// expression fails on a NIC, the NIC is not shared
    #[arg(long, value_name = "CEL", default_value = "")]
    pub shared_nics: Filter,
}

/// What claims divide of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Its bandwidth, in gigabits per second.
    pub bandwidth: Option<u32>,
    /// How many claims can have a part.
    pub claims: Option<NonZeroU32>,
}

/// A flag about shared NICs is set, but no NIC can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the argument '{flag}' has no effect with '--sharing=none', by which no NIC can be shared; set \
     --sharing=count or --sharing=bandwidth, or remove {flag}"
)]
pub struct NothingShared {
    /// The flag.
    pub flag: &'static str,
}

impl SharingArgs {
    /// Refuses flags that have no effect, because whoever set them expects shared NICs.
    ///
    /// # Errors
    /// A flag about shared NICs is set, and `--sharing` is `none`.
    pub fn check(&self) -> Result<(), NothingShared> {
        let flag = match (self.sharing, self.rdma_hca_max) {
            (Sharing::None, Some(_)) => "--rdma-hca-max",
            (Sharing::None, None) if !self.shared_nics.is_empty() => "--shared-nics",
            _ => return Ok(()),
        };
        Err(NothingShared { flag })
    }

    /// Whether claims can share no NIC.
    pub(crate) fn is_none(&self) -> bool {
        self.sharing == Sharing::None
    }

    /// Whether claims can share a NIC with these attributes.
    pub(crate) fn selects(&self, nic: &Attributes) -> bool {
        !self.is_none() && self.shared_nics.selects(nic)
    }

    /// What claims divide of a NIC; `None` if they cannot share it.
    pub(crate) fn shares(&self, nic: &NicState) -> Option<Shares> {
        let is_divided = self.sharing == Sharing::Bandwidth;
        let bandwidth = nic.rate_gbps().filter(|rate| is_divided && *rate > 0);
        let can_be_shared = nic.now.is_shared && (bandwidth.is_some() || !is_divided);
        can_be_shared.then_some(Shares { bandwidth, claims: self.rdma_hca_max })
    }
}

impl Shares {
    /// Its capacities by name.
    pub(crate) fn capacities(self) -> BTreeMap<String, DeviceCapacity> {
        let bandwidth = self.bandwidth.map(|rate| {
            let value = bits_per_second(rate);
            (capacity::BANDWIDTH, DeviceCapacity { value, request_policy: None })
        });
        let claims = self.claims.map(|max| (capacity::SHARES, shares(max)));
        let all = bandwidth.into_iter().chain(claims);
        all.map(|(name, capacity)| (name.to_owned(), capacity)).collect()
    }
}

/// The capacity of shares. A claim without a request for shares gets all of them.
fn shares(max: NonZeroU32) -> DeviceCapacity {
    let (one, all) = (Quantity("1".to_owned()), Quantity(max.to_string()));
    let whole =
        CapacityRequestPolicyRange { min: one.clone(), max: Some(all.clone()), step: Some(one) };
    DeviceCapacity {
        value: all.clone(),
        request_policy: Some(CapacityRequestPolicy {
            default: Some(all),
            valid_range: Some(whole),
            valid_values: None,
        }),
    }
}

/// The quantity as the API server normalizes it: the largest unit that leaves a whole number.
fn bits_per_second(gigabits: u32) -> Quantity {
    Quantity(match gigabits % 1000 {
        0 => format!("{}T", gigabits / 1000),
        _ => format!("{gigabits}G"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::{MAX_ENTRIES, Text};
    use crate::attributes::encode;
    use crate::decision::{decide, decide_with};
    use crate::judge::{Given, Rules};
    use crate::live;
    use crate::node::NodeIdentity;
    use crate::slices::{self, Memory};
    use dra_allocator::{
        AllocatedState, Claim, Inventory, Limits, MinorVersion, Outcome, Settings, allocate,
    };
    use k8s_openapi::api::resource::v1::{Device, ResourceClaim};
    use serde_json::json;
    use topology_graph::LinkLayer;

    const NODE: &str = "n1";

    fn by(sharing: Sharing, rdma_hca_max: Option<u32>) -> SharingArgs {
        let rdma_hca_max = rdma_hca_max.and_then(NonZeroU32::new);
        SharingArgs { sharing, rdma_hca_max, shared_nics: Filter::default() }
    }

    fn shared(machine: &str, by: &SharingArgs) -> Vec<Device> {
        let rules = Rules { sharing: by.clone(), ..Rules::default() };
        decide_with(&live::facts(machine), &rules).devices
    }

    #[test]
    fn quantities_as_the_server_writes_them() {
        let of = |gigabits| bits_per_second(gigabits).0;
        assert_eq!([400, 800, 1000, 1600, 25].map(of), ["400G", "800G", "1T", "1600G", "25G"]);
    }

    #[test]
    fn shared_devices_stay_within_the_limits_of_the_api() {
        let every = [
            by(Sharing::None, None),
            by(Sharing::Bandwidth, None),
            by(Sharing::Bandwidth, Some(8)),
            by(Sharing::Count, Some(8)),
        ];
        for (machine, by) in
            live::MACHINES.iter().flat_map(|it| every.iter().map(move |by| (it, by)))
        {
            for (shared, alone) in
                shared(machine, by).iter().zip(decide(&live::facts(machine)).devices)
            {
                let entries = |device: &Device| {
                    let attributes = device.attributes.as_ref().map_or(0, BTreeMap::len);
                    attributes + device.capacity.as_ref().map_or(0, BTreeMap::len)
                };
                assert!(entries(shared) <= MAX_ENTRIES, "{machine} {by:?}");
                if by.sharing == Sharing::None {
                    assert_eq!(*shared, alone);
                }
                if by.rdma_hca_max.is_none() {
                    assert_eq!(entries(shared), entries(&alone));
                }
            }
        }
    }

    #[test]
    fn a_full_device_makes_room_for_both_capacities() {
        let mut nic = decide(&live::facts("eks-p4d")).nics.pop().unwrap();
        assert!(nic.own_interface().is_some_and(|it| it.encapsulation.word().is_some()));
        let mut rdma = live::rdma_device("mlx5_0", LinkLayer::Ethernet, ["a", "b", "c"]);
        rdma.ports[0].rate_megabits = Some(400_000);
        nic.rdma = Some(rdma);
        let full = |nic: &NicState| encode(nic, &Given::default()).attributes.unwrap().len();
        for number in 0.. {
            if full(&nic) == MAX_ENTRIES {
                break;
            }
            let text = Text::new("x").unwrap();
            nic.machine.cloud.insert(format!("cloud.example/a{number}"), text);
        }
        nic.now.is_shared = true;
        let sharing = by(Sharing::Bandwidth, Some(8)).shares(&nic);
        let device = encode(&nic, &Given { sharing, ..Given::default() });
        let (attributes, capacities) = (device.attributes.unwrap(), device.capacity.unwrap());
        assert_eq!((attributes.len(), capacities.len()), (30, 2));
    }

    /// How many of p4d's seven NICs are shared. Four are EFA NICs, which have no rate.
    #[test]
    fn the_expression_selects_which_nics_are_shared() {
        let rdma = r#"attributes["dra.net/rdma"].BoolValue"#;
        let fails = r#"attributes["dra.net/nothing"].StringValue == "x""#;
        for (expression, expected) in [("", 7), ("false", 0), (rdma, 4), (fails, 0)] {
            let mut by = by(Sharing::Count, Some(4));
            by.shared_nics = expression.parse().unwrap();
            let shared = shared("eks-p4d", &by);
            let shared = shared.iter().filter(|it| it.allow_multiple_allocations == Some(true));
            assert_eq!(shared.count(), expected, "{expression}");
        }
    }

    /// How many claims with this capacity request fit on one NIC of 800 Gbit/s.
    fn claims(by: &SharingArgs, asked: &[(&str, &str)]) -> usize {
        let devices = shared("aks-gb300", by).into_iter().take(1).collect::<Vec<_>>();
        let node =
            NodeIdentity { name: NODE.to_owned(), uid: "n-1".to_owned(), labels: BTreeMap::new() };
        let mut slice = slices::plan(&node, &devices, &[], &Memory::default()).create.remove(0);
        slice.metadata.name = Some("one".to_owned());
        let mut inventory = Inventory::new();
        inventory.apply_slice(&slice).unwrap();
        let class = json!({"metadata": {"name": "nic"}, "spec": {}});
        inventory.apply_class(&serde_json::from_value(class).unwrap()).unwrap();
        let mut exactly =
            json!({"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1});
        if !asked.is_empty() {
            let asked: BTreeMap<_, _> = asked.iter().copied().collect();
            exactly["capacity"] = json!({"requests": asked});
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
        unreachable!("a NIC is full at some point")
    }

    #[test]
    fn claims_divide_the_capacity() {
        const BANDWIDTH: &str = capacity::BANDWIDTH;
        const SHARES: &str = capacity::SHARES;
        let bandwidth = by(Sharing::Bandwidth, None);
        assert_eq!(claims(&bandwidth, &[(BANDWIDTH, "200G")]), 4);
        assert_eq!(claims(&bandwidth, &[(BANDWIDTH, "300G")]), 2);
        assert_eq!(claims(&bandwidth, &[(BANDWIDTH, "1T")]), 0);
        assert_eq!(claims(&bandwidth, &[]), 1, "a claim without a request gets all");
        let count = by(Sharing::Count, Some(3));
        assert_eq!(claims(&count, &[(SHARES, "1")]), 3);
        assert_eq!(claims(&count, &[(SHARES, "100m")]), 3, "no claim gets less than one");
        assert_eq!(claims(&count, &[]), 1);
        let both = by(Sharing::Bandwidth, Some(3));
        assert_eq!(claims(&both, &[(BANDWIDTH, "100G"), (SHARES, "1")]), 3);
        assert_eq!(claims(&both, &[(BANDWIDTH, "400G"), (SHARES, "1")]), 2);
        assert_eq!(claims(&both, &[(BANDWIDTH, "0"), (SHARES, "1")]), 3, "limited by the shares");
        assert_eq!(claims(&both, &[(BANDWIDTH, "100G")]), 1, "all shares");
        assert_eq!(claims(&both, &[]), 1);
    }
}
