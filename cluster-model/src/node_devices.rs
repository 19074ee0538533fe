//! A node's published devices, located in its graph.

use crate::gpu_drivers::{self, GpuDriver};
use crate::names::attribute;
use crate::nic_drivers::{self, GraphName, NameSource, NicDriver};
use crate::view::{ClusterView, NicName};
use dra_allocator::{AllocatedState, AttributeValue, Device, DeviceId};
use std::collections::BTreeMap;
use topology_graph::{Cell, Level, NicRole, PciAddress, Topology};

/// A node with a graph, and its published GPUs and NICs by PCI address.
///
/// Devices that are not in the graph are in no cell.
#[derive(Clone, Debug)]
pub struct NodeDevices<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The graph of the node.
    pub topology: &'a Topology,
    /// The whole GPUs of all known drivers.
    pub gpus: BTreeMap<PciAddress, &'a Device>,
    /// The NICs of known drivers. If two drivers publish a NIC, it is that of the first in the table.
    pub nics: BTreeMap<PciAddress, &'a Device>,
    /// The partitions of the GPUs.
    pub partitions: BTreeMap<PciAddress, Vec<DeviceId>>,
}

/// The role of a published device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A whole GPU of a known driver.
    Gpu,
    /// A NIC of a known driver.
    Nic,
}

/// The GPUs and NICs of a node, with or without a graph, in allocation order.
pub fn published<'a>(
    view: &'a ClusterView,
    node: &str,
) -> impl Iterator<Item = (Role, &'a Device)> {
    // If its slices contradict each other, the node has no known devices, as for the scheduler.
    let published = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
    published.into_iter().filter_map(|device| Some((role(device)?, device)))
}

/// The partitions of GPUs on a node (MIG and the like), by the address that they share with their GPU.
/// A GPU is not free while one of its partitions is in use.
pub fn partitions(view: &ClusterView, node: &str) -> BTreeMap<PciAddress, Vec<DeviceId>> {
    partitions_among(&view.inventory().devices_on(node, view.settings()).unwrap_or_default())
}

fn partitions_among(devices: &[&Device]) -> BTreeMap<PciAddress, Vec<DeviceId>> {
    let mut partitions: BTreeMap<PciAddress, Vec<DeviceId>> = BTreeMap::new();
    for device in devices {
        let driver = gpu_drivers::by_name(&device.id().driver);
        let is_part = driver.is_some_and(|driver| !is_whole(device, driver));
        if is_part && let Some(address) = address(device) {
            partitions.entry(address).or_default().push(device.id().clone());
        }
    }
    partitions
}

fn role(device: &Device) -> Option<Role> {
    let driver = &*device.id().driver;
    if let Some(known) = nic_drivers::by_name(driver) {
        // Other drivers also publish interfaces without a device.
        let has_place = known.is_ours() || graph_name(device, known).is_some();
        return (has_place || address(device).is_some()).then_some(Role::Nic);
    }
    let gpu = gpu_drivers::by_name(driver)?;
    is_whole(device, gpu).then_some(Role::Gpu)
}

impl<'a> NodeDevices<'a> {
    /// The devices of a node; `None` if it has published no graph.
    pub fn new(view: &'a ClusterView, node: &'a str) -> Option<Self> {
        Self::with_nics_of(view, node, nic_drivers::all())
    }

    /// The same with the NICs of these drivers only.
    pub fn with_nics_of(
        view: &'a ClusterView,
        node: &'a str,
        drivers: &[NicDriver],
    ) -> Option<Self> {
        let topology = view.topology(node)?;
        let published = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
        let partitions = partitions_among(&published);
        let (gpus, nics) = (BTreeMap::new(), BTreeMap::new());
        let mut devices = Self { node, topology, gpus, nics, partitions };
        let rank =
            |nic: &Device| drivers.iter().position(|driver| *driver.driver == *nic.id().driver);
        for device in published {
            let Some(role) = role(device) else { continue };
            let Some(address) = address_on(view, node, device) else { continue };
            match role {
                Role::Gpu => _ = devices.gpus.insert(address, device),
                Role::Nic => {
                    let Some(own) = rank(device) else { continue };
                    let known = devices.nics.get(&address).and_then(|known| rank(known));
                    if known.is_none_or(|known| own <= known) {
                        devices.nics.insert(address, device);
                    }
                }
            }
        }
        Some(devices)
    }

    /// The cells of the graph, reduced to published devices. NICs of every role are in them.
    pub fn cells(&self, level: Level) -> Vec<Cell> {
        let mut cells = self.topology.cells_of_all(level);
        for cell in &mut cells {
            cell.gpus.retain(|address| self.gpus.contains_key(address));
            cell.nics.retain(|address| self.nics.contains_key(address));
        }
        cells
    }

    /// The number of cells with GPUs and compute NICs of which no device is in use.
    pub fn whole_cells(&self, level: Level, in_use: &AllocatedState) -> usize {
        let free =
            |device: Option<&&Device>| device.is_some_and(|device| !in_use.is_taken(device.id()));
        let is_compute = |address: &&PciAddress| {
            let Some(nic) = self.nics.get(*address) else { return false };
            nic_role_in(Some(self.topology), nic, Some(**address)) == NicRole::Compute
        };
        let undivided = |gpu: &PciAddress| {
            let mut parts = self.partitions.get(gpu).into_iter().flatten();
            parts.all(|part| !in_use.is_taken(part))
        };
        self.cells(level)
            .iter()
            .filter(|cell| {
                let mut nics = cell.nics.iter().filter(is_compute).peekable();
                !cell.gpus.is_empty()
                    && nics.peek().is_some()
                    && cell.gpus.iter().all(|gpu| free(self.gpus.get(gpu)) && undivided(gpu))
                    && nics.all(|nic| free(self.nics.get(nic)))
            })
            .count()
    }
}

/// Returns true if claims hold parts of a device, and another claim could get a part too.
pub fn is_partly_used(device: &Device, in_use: &AllocatedState) -> bool {
    let id = device.id();
    if in_use.contains(id) || !in_use.is_shared(id) {
        return false;
    }
    let used = in_use.capacity_in_use(id).unwrap_or_default();
    device.capacity().iter().all(|(name, capacity)| {
        let amount = used.iter().find(|(known, _)| known == name);
        amount.is_none_or(|(_, amount)| !capacity.is_used_up_by(amount))
    })
}

/// What a published NIC is for. A NIC without a role, of an older driver or of upstream's, counts as
/// a compute NIC, since a claim cannot tell it from one.
pub fn nic_role(nic: &Device) -> NicRole {
    let role = text(nic, attribute::ROLE).and_then(|text| text.parse().ok());
    role.unwrap_or(NicRole::Compute)
}

/// What a NIC of a node is for: as its driver publishes it, or else as the graph says at this address.
pub fn nic_role_in(graph: Option<&Topology>, nic: &Device, address: Option<PciAddress>) -> NicRole {
    let driver = nic_drivers::by_name(&nic.id().driver);
    if driver.is_none_or(|driver| driver.has_roles) {
        return nic_role(nic);
    }
    let known = address.zip(graph).and_then(|(address, graph)| graph.nic_role(address));
    known.unwrap_or(NicRole::Compute)
}

/// The value of a string attribute.
pub fn text<'a>(device: &'a Device, attribute: &str) -> Option<&'a str> {
    match device.attribute(attribute)? {
        AttributeValue::String(text) => Some(text),
        _ => None,
    }
}

/// Returns true if a boolean attribute exists and is true.
pub fn is_true(device: &Device, attribute: &str) -> bool {
    matches!(device.attribute(attribute), Some(AttributeValue::Bool(true)))
}

/// The PCI address of a device of a node. If its driver does not publish it, the node's graph has it
/// by the UUID of a GPU, or by the RDMA device or the interface of a NIC.
pub fn address_on(view: &ClusterView, node: &str, device: &Device) -> Option<PciAddress> {
    address(device).or_else(|| {
        let driver = &*device.id().driver;
        if let Some(known) = nic_drivers::by_name(driver) {
            return view.nic_address(node, graph_name(device, known)?);
        }
        let driver = gpu_drivers::by_name(driver)?;
        view.gpu_address(node, text(device, driver.uuid_attribute?)?)
    })
}

/// The name by which the graph of its node knows a NIC, if its driver publishes one.
pub fn graph_name<'a>(nic: &'a Device, driver: &NicDriver) -> Option<NicName<'a>> {
    let name = |source| match source {
        NameSource::Device => Some(&*nic.id().device),
        NameSource::Attribute(attribute) => text(nic, attribute),
    };
    match driver.graph_name? {
        GraphName::RdmaDevice(source) => name(source).map(NicName::RdmaDevice),
        GraphName::Interface(source) => name(source).map(NicName::Interface),
    }
}

/// The PCI address of a device, from the standard attribute, or else as the entry of its driver says.
pub fn address(device: &Device) -> Option<PciAddress> {
    published_address(device).or_else(|| {
        let driver = &*device.id().driver;
        let is_in_name = gpu_drivers::by_name(driver).is_some_and(|it| it.is_named_by_address)
            || nic_drivers::by_name(driver).is_some_and(|it| it.is_named_by_address);
        if is_in_name { address_in_name(&device.id().device) } else { None }
    })
}

/// The PCI address of a device from its attributes: one by which a claim can select it.
pub fn published_address(device: &Device) -> Option<PciAddress> {
    // Drivers of other devices, such as CPUs, have upstream DRANET's attribute.
    let published = text(device, attribute::PCI_BUS_ID)
        .or_else(|| text(device, attribute::dranet::PCI_ADDRESS))
        .or_else(|| own_address(device));
    published?.parse().ok()
}

/// The address from an attribute that the entry of the driver names: of a part, that of its GPU.
fn own_address(device: &Device) -> Option<&str> {
    let driver = &*device.id().driver;
    let parts = gpu_drivers::parts().iter().filter(|part| *part.driver == *driver);
    let gpus = gpu_drivers::by_name(driver).into_iter().chain(parts);
    let nics = nic_drivers::by_name(driver).and_then(|nic| nic.address_attribute);
    let mut names = gpus.filter_map(|gpu| gpu.address_attribute).chain(nics);
    names.find_map(|name| text(device, name))
}

/// The PCI address with which the name of a device begins: `0000-4d-00-0-0x1060`, or with a kind
/// before it, `pci-0000-4d-00-0`. Names have no colons and dots.
pub fn address_in_name(name: &str) -> Option<PciAddress> {
    let name = name.strip_prefix("pci-").unwrap_or(name);
    let mut parts = name.split('-');
    let mut part = || parts.next();
    let (domain, bus, slot, function) = (part()?, part()?, part()?, part()?);
    format!("{domain}:{bus}:{slot}.{function}").parse().ok()
}

/// The parts of a driver's GPUs on a node that fulfil a condition, one for each GPU.
pub fn parts<'a>(
    view: &'a ClusterView,
    node: &str,
    part: &GpuDriver,
    is_wanted: impl Fn(&Device) -> bool,
) -> BTreeMap<PciAddress, &'a Device> {
    let published = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
    let mut parts = BTreeMap::new();
    for device in published {
        let is_part = *device.id().driver == *part.driver && is_whole(device, part);
        if is_part
            && is_wanted(device)
            && let Some(address) = part_address(device, part)
        {
            parts.entry(address).or_insert(device);
        }
    }
    parts
}

/// The address of the GPU that a part belongs to.
fn part_address(device: &Device, part: &GpuDriver) -> Option<PciAddress> {
    address(device).or_else(|| text(device, part.address_attribute?)?.parse().ok())
}

/// Returns true for a whole GPU. Partitions (MIG and the like) share its address.
pub fn is_whole(device: &Device, driver: &GpuDriver) -> bool {
    driver.kind_attribute.is_none_or(|name| text(device, name) == Some(driver.gpu_kind))
}
