//! Late binding: a node on which a device plugin gives pods their GPUs publishes places instead of its
//! compute NICs. The scheduler cannot know which GPUs the kubelet will give a pod, so a claim for a
//! place is a claim for any NIC of the node; preparation chooses the NIC.
//!
//! A place is an ordinary device, so the scheduler counts places without any feature gate, and other
//! programs need no rule for them. No NIC is published both ways, so the scheduler can never give the
//! NIC of a place to another pod by its name.

use crate::attributes::{self, encode};
use crate::judge::Given;
use crate::nic::{LinkType, NicState};
use cluster_model::names::LATE_PLACE;
use k8s_openapi::api::resource::v1::Device;
use std::collections::BTreeMap;
use topology_graph::{PciAddress, PortState};

/// A node with more NICs than this says which place is which. A search for `n` places in one request can
/// take the scheduler 2^n steps, so a claim for all of them asks for each by its number.
const COUNTED_MAX: usize = 8;

/// A NIC behind the places, as it is handed to preparation, which chooses one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct LateNic {
    /// Its PCI address.
    pub address: PciAddress,
    /// The device as it would be published by name.
    pub device: Device,
    /// Whether new pods may get it: it has no taint that keeps them away, its port is not down, and its
    /// PCIe link not degraded.
    pub is_usable: bool,
}

impl LateNic {
    pub(crate) fn new(nic: &NicState, given: &Given) -> Option<Self> {
        let is_usable = is_usable(nic, given);
        Some(Self { address: nic.address()?, device: encode(nic, given), is_usable })
    }
}

/// An Ethernet port is down until somebody sets its interface up, and Ethernet NICs are published without
/// the state of their PCIe links.
fn is_usable(nic: &NicState, given: &Given) -> bool {
    let state = nic.port().and_then(|port| port.state);
    let is_down = state.is_some_and(|state| state != PortState::Active);
    let is_impaired = is_down || nic.link_degraded == Some(true);
    given.taints.is_empty() && (nic.link_type == LinkType::Ethernet || !is_impaired)
}

/// The places that stand for these NICs.
///
/// `held` are the NICs of prepared claims by the place that stands for them. Their places stay published,
/// with the taints of their NICs, so that pods are evicted from them as from NICs. The other places are as
/// many as NICs are usable and not held, also by claims that name them.
pub(crate) fn places(nics: &[(NicState, Given)], held: &BTreeMap<String, String>) -> Vec<Device> {
    let common = attributes::common(nics.iter().map(|(nic, _)| nic));
    let open =
        nics.iter().filter(|(nic, given)| nic.now.holding.is_none() && is_usable(nic, given));
    let free = (0..).map(|number| format!("{LATE_PLACE}{number}"));
    let free = free.filter(|name| !held.contains_key(name)).take(open.count());
    let free = free.map(|name| (name, Vec::new()));
    let taken = held.iter().map(|(name, nic)| {
        let of_nic = nics.iter().find(|(it, _)| it.name == *nic);
        let taints = of_nic.map(|(_, given)| given.taints.clone()).unwrap_or_default();
        (name.clone(), taints)
    });
    let places = free.chain(taken).map(|(name, taints)| {
        let number = number(&name).filter(|_| nics.len() > COUNTED_MAX);
        attributes::place(name, &common, number, taints)
    });
    let mut places: Vec<Device> = places.collect();
    places.sort_by_key(|place| number(&place.name));
    places
}

fn number(place: &str) -> Option<u16> {
    place.strip_prefix(LATE_PLACE)?.parse().ok()
}

#[cfg(test)]
mod tests;
