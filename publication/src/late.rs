//! Late binding: a node on which a device plugin gives pods their GPUs publishes places instead of its
//! compute NICs. The scheduler cannot know which GPUs the kubelet will give a pod, so a claim for a
//! place is a claim for any NIC of the node; preparation chooses the NIC.
//!
//! A place is an ordinary device, so the scheduler counts places without any feature gate, and other
//! programs need no rule for them. No NIC is published both ways, so the scheduler can never give the
//! NIC of a place to another pod by its name.

use crate::decision::Decision;
use crate::nic::device_name;
use cluster_model::names::LATE_PLACE;
use cluster_model::names::attribute::{self, dranet};
use cluster_model::published_device::{PublishedDevice as _, WireDevice};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{NicRole, PciAddress};

/// How pods get the compute NICs of this node.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindNics {
    /// The scheduler chooses each NIC by its name.
    #[default]
    Named,
    /// The scheduler counts NICs, and the driver chooses those near the GPUs that a device plugin has
    /// given the pod.
    Late,
}

/// A NIC that preparation can choose.
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

/// Attributes on which all NICs of a machine usually agree, and that do not say which NIC it is.
const COMMON: [&str; 9] = [
    dranet::RDMA,
    dranet::ENCAPSULATION,
    dranet::IB_ONLY,
    dranet::PCI_VENDOR,
    dranet::PCI_DEVICE,
    attribute::SHAPE,
    attribute::ROLE,
    attribute::LINK_TYPE,
    attribute::FABRIC,
];

impl Decision {
    /// Publishes places instead of compute NICs with RDMA; returns these NICs.
    ///
    /// `held` are the NICs of prepared claims by the place that stands for them. Their places stay
    /// published, with the taints of their NICs, so that pods are evicted from them as from NICs. The
    /// other places are as many as NICs are usable and not `taken`, also by claims that name them.
    pub fn bound_late(
        mut self,
        held: &BTreeMap<String, String>,
        taken: &BTreeSet<String>,
    ) -> (Self, Vec<LateNic>) {
        let late: Vec<Device> = self.devices.extract_if(.., |device| is_late(device)).collect();
        let nics: Vec<LateNic> = late.into_iter().filter_map(late_nic).collect();
        let attributes = common(&nics);
        let open = nics.iter().filter(|nic| nic.is_usable && !taken.contains(&nic.device.name));
        let free = (0..).map(|number| format!("{LATE_PLACE}{number}"));
        let free = free.filter(|name| !held.contains_key(name)).take(open.count());
        let mut places: Vec<Device> = free.map(|name| place(name, &attributes)).collect();
        for (name, nic) in held {
            let of_nic = nics.iter().find(|it| it.device.name == *nic);
            let taints = of_nic.and_then(|nic| nic.device.taints.clone());
            places.push(Device { taints, ..place(name.clone(), &attributes) });
        }
        places.sort_by_key(|place| number(&place.name));
        self.devices.extend(places);
        (self, nics)
    }
}

fn number(place: &str) -> Option<u16> {
    place.strip_prefix(LATE_PLACE)?.parse().ok()
}

fn place(name: String, attributes: &BTreeMap<String, DeviceAttribute>) -> Device {
    Device { name, attributes: Some(attributes.clone()), ..Device::default() }
}

/// A compute NIC with RDMA that has a PCI address.
pub fn is_late(device: &Device) -> bool {
    let nic = WireDevice::of_ours(device);
    nic.published_nic_role() == Some(NicRole::Compute)
        && nic.has_rdma()
        && address(device).is_some()
}

/// The address of a NIC that has its name from it.
fn address(device: &Device) -> Option<PciAddress> {
    let address = WireDevice::of_ours(device).address()?;
    (device_name(address) == device.name).then_some(address)
}

fn late_nic(device: Device) -> Option<LateNic> {
    let is_usable = WireDevice::of_ours(&device).trouble().is_none();
    Some(LateNic { address: address(&device)?, device, is_usable })
}

impl LateNic {
    fn attribute(&self, name: &str) -> Option<&DeviceAttribute> {
        self.device.attributes.as_ref()?.get(name)
    }
}

fn is_common(name: &str) -> bool {
    COMMON.contains(&name) || attribute::MACHINE_TYPES.contains(&name) || is_of_cloud(name)
}

/// The attributes of every place: those on which all NICs agree, and that the device is a place.
fn common(nics: &[LateNic]) -> BTreeMap<String, DeviceAttribute> {
    let first = nics.first().and_then(|nic| nic.device.attributes.clone()).unwrap_or_default();
    let mut common: BTreeMap<_, _> = first
        .into_iter()
        .filter(|(name, value)| {
            is_common(name) && nics.iter().all(|nic| nic.attribute(name) == Some(value))
        })
        .collect();
    let yes = || DeviceAttribute { bool: Some(true), ..DeviceAttribute::default() };
    common.insert(attribute::LATE_BINDING.to_owned(), yes());
    common.insert(dranet::RDMA.to_owned(), yes());
    common
}

/// Attributes of clouds are those of the machine, `azure.dra.net/…`.
fn is_of_cloud(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain.ends_with(".dra.net"))
}

#[cfg(test)]
mod tests;
