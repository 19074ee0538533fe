//! A node's published devices, located in its graph.

use crate::gpu_drivers::{self, GpuDriver};
use crate::names::{self, attribute};
use crate::view::ClusterView;
use dra_allocator::{AllocatedState, AttributeValue, Device};
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
    /// The NICs of our driver.
    pub nics: BTreeMap<PciAddress, &'a Device>,
}

/// The role of a published device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A whole GPU of a known driver.
    Gpu,
    /// A NIC of our driver.
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

fn role(device: &Device) -> Option<Role> {
    let driver = &*device.id().driver;
    if driver == names::DRIVER {
        return Some(Role::Nic);
    }
    let gpu = gpu_drivers::by_name(driver)?;
    is_whole(device, gpu).then_some(Role::Gpu)
}

impl<'a> NodeDevices<'a> {
    /// The devices of a node; `None` if it has published no graph.
    pub fn of(view: &'a ClusterView, node: &'a str) -> Option<Self> {
        let topology = view.topology(node)?;
        let mut devices = Self { node, topology, gpus: BTreeMap::new(), nics: BTreeMap::new() };
        for (role, device) in published(view, node) {
            let Some(address) = address(device) else { continue };
            match role {
                Role::Nic => devices.nics.insert(address, device),
                Role::Gpu => devices.gpus.insert(address, device),
            };
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
            |device: Option<&&Device>| device.is_some_and(|device| !in_use.contains(device.id()));
        let is_compute = |nic: &&PciAddress| {
            self.nics.get(*nic).is_some_and(|nic| nic_role(nic) == NicRole::Compute)
        };
        let whole = |cell: &&Cell| {
            let mut nics = cell.nics.iter().filter(is_compute).peekable();
            !cell.gpus.is_empty()
                && nics.peek().is_some()
                && cell.gpus.iter().all(|gpu| free(self.gpus.get(gpu)))
                && nics.all(|nic| free(self.nics.get(nic)))
        };
        self.cells(level).iter().filter(whole).count()
    }
}

/// What a published NIC is for. A NIC without a role, of an older driver or of upstream's, counts as
/// a compute NIC, since a claim cannot tell it from one.
pub fn nic_role(nic: &Device) -> NicRole {
    let role = text(nic, attribute::ROLE).and_then(|text| text.parse().ok());
    role.unwrap_or(NicRole::Compute)
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

/// The PCI address of a device, from the standard attribute, or else from that of upstream DRANET.
pub fn address(device: &Device) -> Option<PciAddress> {
    let names = [attribute::PCI_BUS_ID, attribute::dranet::PCI_ADDRESS];
    names.iter().find_map(|name| text(device, name))?.parse().ok()
}

/// Returns true for a whole GPU. Partitions (MIG and the like) share its address.
fn is_whole(device: &Device, driver: &GpuDriver) -> bool {
    driver.kind_attribute.is_none_or(|name| text(device, name) == Some(driver.gpu_kind))
}
