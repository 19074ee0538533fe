//! NICs that pods share: each pod takes a part of the capacities that the operator lets claims
//! divide, which are the bandwidth of a NIC and the number of its claims (KEP-5075).
//!
//! A request that does not name a capacity takes all of it, so the claim names every capacity of
//! the NICs. A constraint keeps the NICs of a pod distinct: the scheduler may allocate a shared
//! NIC more than once, also to the same pod.

use super::Asker;
use super::nic_config::NicConfig;
use crate::claim::{ClaimParts, distinct_attribute};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::wording::count;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, capacity};
use cluster_model::node_devices::capacity_of;
use dra_allocator::quantity::Format;
use dra_allocator::{Device, Quantity, Settings};
use k8s_openapi::api::resource::v1::CapacityRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// The annotation value that requests shared NICs.
const SHARED: &str = "shared";

/// The annotation value that requests exclusive NICs, the default.
const EXCLUSIVE: &str = "exclusive";

/// The smallest bandwidth that is accepted. A lower value is probably a forgotten unit.
const BITS_MIN: i64 = 1_000_000;

/// The pod's share of each NIC that it shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NicShare {
    /// Its part of the bandwidth, as the API server writes it; `None` for a share by number.
    pub bandwidth: Option<String>,
}

impl NicShare {
    /// Reads the share from the annotations; `None` for exclusive NICs.
    pub(super) fn read(asker: &Asker<'_>) -> Result<Option<Self>, Denial> {
        let is_shared = match asker.annotation(annotation::NIC_SHARING) {
            None | Some(EXCLUSIVE) => false,
            Some(SHARED) => true,
            Some(value) => {
                let denial = Denial::new(annotation::NIC_SHARING, value, "invalid value");
                return Err(denial.allowed(format!("\"{SHARED}\" or \"{EXCLUSIVE}\"")));
            }
        };
        match asker.annotation(annotation::NIC_BANDWIDTH) {
            None => Ok(is_shared.then_some(Self { bandwidth: None })),
            Some(value) if !is_shared => {
                let why = "the pod has all of the bandwidth of NICs that are its own";
                let denial = Denial::new(annotation::NIC_BANDWIDTH, value, why);
                Err(denial.allowed(format!("{}: \"{SHARED}\" beside it", annotation::NIC_SHARING)))
            }
            Some(value) => read_bandwidth(value).map(|it| Some(Self { bandwidth: Some(it) })),
        }
    }

    /// Denies `passthrough` for shared NICs: the NIC's own interface can be in only one pod.
    pub(super) fn check_config(config: &NicConfig) -> Result<(), Denial> {
        if !config.is_passthrough() {
            return Ok(());
        }
        let why = "`interface.type: passthrough` moves the NIC's own interface into the pod, which \
                   other pods cannot share then";
        Err(deny(why).allowed("another type in dranet.io/nic-config, or none"))
    }

    /// Drops NICs without the requested capacity, and machines without remaining NICs. Returns the
    /// capacity to request from each NIC.
    pub(super) fn keep(
        &self,
        settings: &Settings,
        machines: &mut Vec<Machine<'_>>,
    ) -> Result<CapacityRequirements, Denial> {
        if !settings.gates.consumable_capacity {
            return Err(deny(
                "pods share a NIC by taking parts of its capacity, and the scheduler cannot allocate \
                 parts (feature gate DRAConsumableCapacity is off; it is on by default since Kubernetes 1.36)",
            ));
        }
        let by_number = nics(machines).any(|nic| amount(nic, capacity::SHARES).is_some());
        let fastest = nics(machines).filter_map(|nic| amount(nic, capacity::BANDWIDTH)).max();
        let mut requests = BTreeMap::new();
        match (&self.bandwidth, self.bits(), fastest) {
            (Some(bandwidth), Some(bits), Some(most)) if bits <= most => {
                requests.insert(capacity::BANDWIDTH.to_owned(), Text(bandwidth.clone()));
            }
            (Some(bandwidth), _, Some(most)) => {
                let most = Quantity::new(most, Format::DecimalSi);
                let why = format!("no NIC that pods can share here has more than {most}");
                return Err(Denial::new(annotation::NIC_BANDWIDTH, bandwidth, why));
            }
            (Some(bandwidth), ..) => {
                let why = "the NICs that pods can share here are shared by a number of pods, and \
                           publish no bandwidth (node-driver's --sharing=bandwidth does)";
                let denial = Denial::new(annotation::NIC_BANDWIDTH, bandwidth, why);
                return Err(denial.allowed("no such annotation"));
            }
            (None, ..) if !by_number => {
                return Err(deny(
                    "NICs are shared by their bandwidth here, and the pod does not say \
                                 how much it needs",
                )
                .allowed(format!(
                    "{}, for example \"50G\", beside it",
                    annotation::NIC_BANDWIDTH
                )));
            }
            // The pod shares NICs with pods that request bandwidth; its own use is not limited.
            (None, _, Some(_)) => {
                requests.insert(capacity::BANDWIDTH.to_owned(), Text("0".to_owned()));
            }
            (None, _, None) => {}
        }
        if by_number {
            requests.insert(capacity::SHARES.to_owned(), Text("1".to_owned()));
        }
        for machine in machines.iter_mut() {
            machine.devices.nics.retain(|_, nic| has(nic, &requests));
        }
        machines.retain(|machine| !machine.devices.nics.is_empty());
        if machines.is_empty() {
            return Err(deny(
                "no NIC here is shared by its bandwidth and by a number of pods at once, \
                             as others are; set node-driver's --sharing alike on all nodes",
            ));
        }
        Ok(CapacityRequirements { requests: Some(requests) })
    }

    /// Denies a pod for which machines exist, but none with NICs that can be shared.
    pub(crate) fn deny_all() -> Denial {
        deny(
            "no NIC that the pod could have can be shared; ask the operator to set node-driver's \
             --sharing (chart: nodeDriver.sharing)",
        )
    }

    /// The capacity to request from each NIC while no NIC is published.
    pub(crate) fn unseen(&self) -> CapacityRequirements {
        let (name, amount) = match &self.bandwidth {
            Some(bandwidth) => (capacity::BANDWIDTH, bandwidth.as_str()),
            None => (capacity::SHARES, "1"),
        };
        let requests = BTreeMap::from([(name.to_owned(), Text(amount.to_owned()))]);
        CapacityRequirements { requests: Some(requests) }
    }

    /// Adds a constraint that the NICs of the pod are distinct.
    pub(super) fn keep_apart(demand: &Demand, parts: &mut ClaimParts) {
        if demand.all_nics() > 1 {
            let nics = parts.nic_requests.clone();
            parts.constraints.push(distinct_attribute(nics, attribute::PCI_BUS_ID));
        }
    }

    /// Says how the NICs are shared.
    pub(super) fn said(&self) -> String {
        match &self.bandwidth {
            Some(bandwidth) => format!(", {bandwidth} bit/s of each NIC shared with other pods"),
            None => ", NICs shared with other pods".to_owned(),
        }
    }

    fn bits(&self) -> Option<i64> {
        Some(self.bandwidth.as_ref()?.parse::<Quantity>().ok()?.value())
    }
}

/// Parses the bandwidth; returns it as the API server writes it.
fn read_bandwidth(value: &str) -> Result<String, Denial> {
    let why = match value.parse::<Quantity>().map(|quantity| (quantity, quantity.as_i64())) {
        Ok((quantity, Some(bits))) if bits >= BITS_MIN => return Ok(quantity.to_string()),
        Ok((_, Some(bits @ 1..))) => format!("it means {}", count_bits(bits)),
        Ok((_, Some(_))) => "it asks for nothing".to_owned(),
        Ok((_, None)) => "it is not a whole number of bits per second".to_owned(),
        Err(_) => "invalid value: not an amount of bandwidth".to_owned(),
    };
    Err(Denial::new(annotation::NIC_BANDWIDTH, value, why)
        .allowed("bits per second with a unit, for example \"50G\" for 50 Gbit/s"))
}

fn count_bits(bits: i64) -> String {
    count(usize::try_from(bits).unwrap_or(usize::MAX), "bit") + " per second"
}

fn deny(why: impl Into<String>) -> Denial {
    Denial::new(annotation::NIC_SHARING, SHARED, why)
}

/// The amount of a capacity of a NIC.
fn amount(nic: &Device, name: &str) -> Option<i64> {
    Some(capacity_of(nic, name)?.value.value())
}

/// Returns true if a NIC has the requested capacity.
fn has(nic: &Device, requests: &BTreeMap<String, Text>) -> bool {
    requests.iter().all(|(name, asked)| {
        let asked = asked.0.parse::<Quantity>().map_or(i64::MAX, |asked| asked.value());
        amount(nic, name).is_some_and(|most| asked <= most)
    })
}

fn nics<'m>(machines: &'m [Machine<'_>]) -> impl Iterator<Item = &'m Device> {
    machines.iter().flat_map(|machine| machine.devices.nics.values().copied())
}
