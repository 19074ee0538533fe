//! Writes a NIC as a device: the only place that knows the names of its attributes.
//!
//! Pure. Names and values of upstream DRANET are unchanged, so that templates written for it keep working.
//! The standard attributes, the join attributes of the GPU drivers that are present and our own attributes
//! are added. No attribute's presence depends on another's, and the table is the same for every device of a
//! link type, so it shows what a claim can rely on.

mod table;
mod values;

use crate::attribute::{Attributes, MAX_ENTRIES, Value};
use crate::judge::Given;
use crate::nic::NicState;
use cluster_model::gpu_drivers::{self, NIC_KIND};
use cluster_model::names::attribute::{self, dranet};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceTaint};
use std::collections::BTreeMap;
use table::table;

/// What an Ethernet NIC in a cloud omits if it has too many attributes, first to last: the
/// encapsulation repeats the link type, and only interfaces without a device are virtual.
const REDUNDANT: [&str; 2] = [dranet::ENCAPSULATION, dranet::VIRTUAL];

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

/// The device of a NIC, in the API's form. The bandwidth capacity replaces the rate attribute, so that the
/// device stays within the limit of entries.
pub fn encode(nic: &NicState, given: &Given) -> Device {
    let mut attributes = attributes(nic);
    let capacity = given.sharing.map(|shares| {
        if shares.bandwidth.is_some() {
            attributes.remove(attribute::RATE_GBPS);
        }
        let capacities = shares.capacities();
        drop_redundant(&mut attributes, MAX_ENTRIES - capacities.len());
        capacities
    });
    Device {
        allow_multiple_allocations: capacity.is_some().then_some(true),
        capacity,
        taints: Some(given.taints.clone()).filter(|taints| !taints.is_empty()),
        ..device(nic.name.clone(), attributes)
    }
}

/// A place that stands for any of several NICs, with what all of them have in [`common`], and its number if
/// claims need it.
pub(crate) fn place(
    name: String,
    common: &Attributes,
    number: Option<u16>,
    taints: Vec<DeviceTaint>,
) -> Device {
    let taints = Some(taints).filter(|taints| !taints.is_empty());
    let mut attributes = common.clone();
    attributes.extend(number.map(|it| (attribute::PLACE.to_owned(), Value::Int(it.into()))));
    Device { taints, ..device(name, attributes) }
}

/// The attributes of every place: those on which these NICs agree, and that the device is a place.
pub(crate) fn common<'a>(nics: impl Iterator<Item = &'a NicState>) -> Attributes {
    let mut all = nics.map(attributes);
    let mut common = all.next().unwrap_or_default();
    common.retain(|name, _| {
        let is_machine_type = attribute::MACHINE_TYPES.contains(&name.as_str());
        COMMON.contains(&name.as_str()) || is_machine_type || is_of_cloud(name)
    });
    for other in all {
        common.retain(|name, value| other.get(name) == Some(value));
    }
    common.insert(attribute::LATE_BINDING.to_owned(), Value::Bool(true));
    common.insert(dranet::RDMA.to_owned(), Value::Bool(true));
    common
}

fn device(name: String, attributes: Attributes) -> Device {
    let attributes = attributes.into_iter();
    let attributes: BTreeMap<_, DeviceAttribute> =
        attributes.map(|(name, value)| (name, value.into())).collect();
    Device { name, attributes: Some(attributes), ..Device::default() }
}

/// Attributes of clouds are those of the machine, `azure.dra.net/…`.
fn is_of_cloud(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain.ends_with(".dra.net"))
}

/// All attributes of a NIC.
pub fn attributes(nic: &NicState) -> Attributes {
    let of_table = table(nic.link_type).filter_map(|(name, _, value)| Some((*name, value(nic)?)));
    let of_cloud = nic.machine.cloud.iter();
    let of_cloud = of_cloud.map(|(name, text)| (name.clone(), Value::Text(text.clone())));
    let own = of_table.chain(joins(nic)).map(|(name, value)| (name.to_owned(), value));
    let mut attributes = own.chain(of_cloud).collect();
    drop_redundant(&mut attributes, MAX_ENTRIES);
    attributes
}

/// Drops attributes that repeat others while there are more than `room`.
fn drop_redundant(attributes: &mut Attributes, room: usize) {
    for name in REDUNDANT {
        if attributes.len() > room {
            attributes.remove(name);
        }
    }
}

/// Attributes with which a claim can match this NIC to GPUs or tell it apart from them.
fn joins(nic: &NicState) -> impl Iterator<Item = (&'static str, Value)> {
    let driver = nic.machine.gpu_driver.as_ref().filter(|_| nic.function.is_some());
    let driver = driver.and_then(|driver| gpu_drivers::by_name(driver));
    let joins = driver.map(|driver| {
        let numa = nic.numa.map(|node| Value::Int(node.0));
        let partner = nic.partner.as_ref().and_then(|uuid| Value::text(uuid));
        [
            driver.kind_attribute.zip(Value::text(NIC_KIND)),
            driver.numa_attribute.zip(numa),
            driver.uuid_attribute.zip(partner),
        ]
    });
    joins.into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests;
