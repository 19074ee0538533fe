//! Decides which attributes a NIC has: one table per link type.
//!
//! Pure. Names and values of upstream DRANET are unchanged, so that templates written for
//! it keep working. The standard attributes, the join attributes of the GPU drivers that
//! are present and our own attributes are added. No attribute's presence depends on
//! another's, and the table is the same for every device of a type, so these tables show
//! what a claim can rely on.

mod ethernet;
mod infiniband;
mod slots;
mod verbs;
mod virtual_interface;

use crate::attribute::{Attributes, MAX_ENTRIES, Value};
use crate::cloud::CloudMetadata;
use crate::nic::{LinkType, Nic};
use cluster_model::gpu_drivers::{self, GpuDriver, NIC_KIND};
use cluster_model::names::attribute;
use k8s_openapi::api::resource::v1::Device;
use std::collections::BTreeMap;
use topology_graph::{Level, NicRole, NumaNode, PciAddress, Topology};

/// One attribute of a table: its name, and how its value follows from the facts.
pub(crate) struct Slot {
    name: &'static str,
    value: fn(&Nic<'_>, &MachineFacts<'_>) -> Option<Value>,
}

/// What an Ethernet NIC in a cloud omits if it has too many attributes, first to last: the
/// encapsulation repeats the link type, and only interfaces without a device are virtual.
pub(crate) const REDUNDANT: [&str; 2] =
    [attribute::dranet::ENCAPSULATION, attribute::dranet::VIRTUAL];

/// Facts about the machine that a NIC's attributes depend on.
#[derive(Debug)]
pub struct MachineFacts<'a> {
    topology: &'a Topology,
    cloud: &'a CloudMetadata,
    /// The driver of the GPUs that are present. If there are several, the first known
    /// one: a table has room for the join attributes of one driver.
    gpu_driver: Option<&'static GpuDriver>,
    /// Driver and UUID of the GPU that the graph pairs with a NIC.
    partners: BTreeMap<PciAddress, (&'static GpuDriver, &'a str)>,
    /// The PCIe switch above each NIC that has one.
    switches: BTreeMap<PciAddress, String>,
    /// The rail number of each compute NIC that has one.
    rails: BTreeMap<PciAddress, u32>,
}

impl<'a> MachineFacts<'a> {
    /// Collects the machine's facts from the topology, the cloud's metadata, these NICs, and the
    /// rails of physical functions.
    pub fn new(
        topology: &'a Topology,
        cloud: &'a CloudMetadata,
        nics: &[Nic<'_>],
        numbers: BTreeMap<PciAddress, u32>,
    ) -> Self {
        Self {
            topology,
            cloud,
            gpu_driver: gpu_drivers::all()
                .iter()
                .find(|driver| topology.gpus().iter().any(|gpu| gpu.vendor == driver.pci_vendor)),
            partners: partners(topology),
            switches: switches(topology),
            rails: rails(nics, topology, numbers),
        }
    }

    /// Its graph.
    pub(crate) fn topology(&self) -> &Topology {
        self.topology
    }

    /// What a NIC is for; `None` for a virtual interface.
    fn role(&self, nic: &Nic<'_>) -> Option<NicRole> {
        role(nic, self.topology)
    }

    /// The NUMA node of a NIC in the topology: from firmware, or from what is known about
    /// the VM size.
    fn numa(&self, nic: &Nic<'_>) -> Option<NumaNode> {
        self.topology.nic(nic.address()?)?.numa
    }
}

/// The partner GPU of each NIC that has one with a UUID.
fn partners(topology: &Topology) -> BTreeMap<PciAddress, (&'static GpuDriver, &str)> {
    let pairs = topology.partners();
    // An attribute has one value, so a NIC that is equally near to several GPUs names none of them.
    let alone =
        pairs.iter().filter(|pair| pairs.iter().filter(|it| it.nic == pair.nic).count() == 1);
    let partners = alone.filter_map(|pair| {
        let gpu = topology.gpu(pair.gpu)?;
        Some((pair.nic, (gpu_drivers::by_pci_vendor(gpu.vendor)?, gpu.uuid.as_deref()?)))
    });
    partners.collect()
}

fn switches(topology: &Topology) -> BTreeMap<PciAddress, String> {
    let cells = topology.cells_of_all(Level::Switch).into_iter();
    cells.flat_map(|cell| cell.nics.into_iter().map(move |nic| (nic, cell.key.clone()))).collect()
}

fn role(nic: &Nic<'_>, topology: &Topology) -> Option<NicRole> {
    topology.nic_role(nic.address()?)
}

/// The rail of each compute NIC with verbs, from those of physical functions. A virtual function has
/// that of its physical function.
fn rails(
    nics: &[Nic<'_>],
    topology: &Topology,
    numbers: BTreeMap<PciAddress, u32>,
) -> BTreeMap<PciAddress, u32> {
    let mut rails = numbers;
    let compute = nics.iter().filter(|nic| role(nic, topology) == Some(NicRole::Compute));
    let functions = compute.filter(|nic| nic.rdma.is_some()).filter_map(|nic| nic.function);
    for function in functions {
        let rail = function.physical_function.and_then(|physical| rails.get(&physical).copied());
        rails.extend(rail.map(|rail| (function.address, rail)));
    }
    rails
}

/// The devices of a machine, in the API's form.
pub fn devices(nics: &[Nic<'_>], machine: &MachineFacts<'_>) -> Vec<Device> {
    nics.iter().map(|nic| device(nic, machine)).collect()
}

/// The device of a NIC, in the API's form.
pub(crate) fn device(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Device {
    let attributes = attributes(nic, machine);
    let attributes = attributes.into_iter().map(|(name, value)| (name, value.into())).collect();
    Device { name: nic.name.clone(), attributes: Some(attributes), ..Device::default() }
}

/// All attributes of a NIC.
pub fn attributes(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Attributes {
    let mut attributes = Attributes::new();
    for slot in table(nic.link_type) {
        attributes.extend((slot.value)(nic, machine).map(|value| (slot.name.to_owned(), value)));
    }
    let cloud = machine.cloud.iter();
    attributes.extend(cloud.map(|(name, text)| (name.to_owned(), Value::Text(text.clone()))));
    attributes.extend(joins(nic, machine));
    drop_redundant(&mut attributes, MAX_ENTRIES);
    attributes
}

/// Drops attributes that repeat others while there are more than `room`.
pub(crate) fn drop_redundant<V>(attributes: &mut BTreeMap<String, V>, room: usize) {
    for name in REDUNDANT {
        if attributes.len() > room {
            attributes.remove(name);
        }
    }
}

/// The table of a link type.
fn table(link_type: LinkType) -> &'static [Slot] {
    match link_type {
        LinkType::InfiniBand => infiniband::SLOTS,
        LinkType::Ethernet => ethernet::SLOTS,
        LinkType::Verbs => verbs::SLOTS,
        LinkType::Virtual => virtual_interface::SLOTS,
    }
}

/// Attributes with which a claim can match this NIC to GPUs or tell it apart from them.
fn joins(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Attributes {
    let mut joins = Attributes::new();
    let (Some(driver), Some(address)) = (machine.gpu_driver, nic.address()) else { return joins };
    let mut join = |name: &str, value: Option<Value>| {
        joins.extend(value.map(|value| (name.to_owned(), value)));
    };
    if let Some(name) = driver.kind_attribute {
        join(name, Value::text(NIC_KIND));
    }
    if let Some(name) = driver.numa_attribute {
        join(name, machine.numa(nic).map(|node| Value::Int(node.0)));
    }
    if let Some(name) = driver.uuid_attribute {
        let partner = machine.partners.get(&address).filter(|(of, _)| *of == driver);
        join(name, partner.and_then(|(_, uuid)| Value::text(uuid)));
    }
    joins
}

#[cfg(test)]
mod tests;
