//! Which attributes a NIC has: the decision, as one table per link type.
//!
//! Pure. Upstream DRANET's names and values are unchanged, so that templates
//! written for it go on working; the standard attributes, the joins with the
//! GPU drivers that are present and our own come on top. One attribute's
//! presence never depends on another's, and the table is the same for every
//! device of a type, so that what a claim may rely on can be read here.

mod infiniband;

use crate::attribute::{Attributes, Value};
use crate::cloud::CloudMetadata;
use crate::nic::{LinkType, Nic};
use cluster_model::gpu_drivers::{self, GpuDriver, NIC_KIND};
use k8s_openapi::api::resource::v1::Device;
use std::collections::BTreeMap;
use topology_graph::{NumaNode, PciAddress, Topology};

/// One attribute of a table: its name, and how its value follows from the facts.
pub(crate) struct Slot {
    name: &'static str,
    value: fn(&Nic<'_>, &Machine<'_>) -> Option<Value>,
}

/// What a NIC's attributes depend on beside the NIC itself.
#[derive(Debug)]
pub struct Machine<'a> {
    topology: &'a Topology,
    cloud: &'a CloudMetadata,
    /// The driver of each kind of GPU that is present.
    gpu_drivers: Vec<&'static GpuDriver>,
    /// Driver and UUID of the GPU that the graph pairs with a NIC.
    partners: BTreeMap<PciAddress, (&'static GpuDriver, &'a str)>,
}

impl<'a> Machine<'a> {
    /// The machine of a graph.
    pub fn new(topology: &'a Topology, cloud: &'a CloudMetadata) -> Self {
        let present =
            |driver: &&GpuDriver| topology.gpus().iter().any(|gpu| gpu.vendor == driver.pci_vendor);
        Self {
            topology,
            cloud,
            gpu_drivers: gpu_drivers::GPU_DRIVERS.iter().filter(present).collect(),
            partners: partners(topology),
        }
    }

    /// The NUMA node of a NIC's CPUs, from the graph: firmware, or what is known
    /// of the virtual machine's size.
    fn numa(&self, nic: &Nic<'_>) -> Option<NumaNode> {
        self.topology.nic(nic.function.address)?.numa
    }
}

/// The partner GPU of each NIC that has one with a UUID.
fn partners(topology: &Topology) -> BTreeMap<PciAddress, (&'static GpuDriver, &str)> {
    let partner = |pair: topology_graph::Pair| {
        let gpu = topology.gpu(pair.gpu)?;
        Some((pair.nic, (gpu_drivers::by_pci_vendor(gpu.vendor)?, gpu.uuid.as_deref()?)))
    };
    topology.pairs().into_iter().filter_map(partner).collect()
}

/// The devices of a machine as the API server takes them.
pub fn devices(nics: &[Nic<'_>], machine: &Machine<'_>) -> Vec<Device> {
    nics.iter().map(|nic| device(nic, machine)).collect()
}

fn device(nic: &Nic<'_>, machine: &Machine<'_>) -> Device {
    let attributes = attributes(nic, machine);
    let attributes = attributes.into_iter().map(|(name, value)| (name, value.into())).collect();
    Device { name: nic.device_name(), attributes: Some(attributes), ..Device::default() }
}

/// All attributes of a NIC.
pub fn attributes(nic: &Nic<'_>, machine: &Machine<'_>) -> Attributes {
    let mut attributes = Attributes::new();
    for slot in table(nic.link_type) {
        attributes.extend((slot.value)(nic, machine).map(|value| (slot.name.to_owned(), value)));
    }
    let cloud = machine.cloud.iter();
    attributes.extend(cloud.map(|(name, text)| (name.to_owned(), Value::Text(text.clone()))));
    attributes.extend(joins(nic, machine));
    attributes
}

/// The table of a link type.
fn table(link_type: LinkType) -> &'static [Slot] {
    match link_type {
        LinkType::InfiniBand => infiniband::SLOTS,
    }
}

/// What a claim can hold equal, or tell apart, between this NIC and the GPUs.
fn joins(nic: &Nic<'_>, machine: &Machine<'_>) -> Attributes {
    let mut joins = Attributes::new();
    let mut join = |name: &str, value: Option<Value>| {
        joins.extend(value.map(|value| (name.to_owned(), value)));
    };
    let partner = machine.partners.get(&nic.function.address);
    for driver in &machine.gpu_drivers {
        join(driver.kind_attribute, Value::text(NIC_KIND));
        if let Some(name) = driver.numa_attribute {
            join(name, machine.numa(nic).map(|node| Value::Int(node.0)));
        }
        if let Some(name) = driver.uuid_attribute {
            let uuid =
                partner.filter(|(of, _)| of == driver).and_then(|(_, uuid)| Value::text(uuid));
            join(name, uuid);
        }
    }
    joins
}

#[cfg(test)]
mod tests;
