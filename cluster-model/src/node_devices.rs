//! A node's published devices, located in its graph.

use crate::gpu_drivers::GpuDriver;
use crate::nic_drivers::{self, NicDriver};
use crate::published_device::{DeviceNames, NicName, PublishedDevice};
use crate::view::ClusterView;
use dra_allocator::device::DeviceCapacity;
use dra_allocator::{AllocatedState, AttributeValue, Device, DeviceId};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{Cell, Level, NicRole, PciAddress, Topology};

pub use crate::published_device::Role;

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

/// A published device of a node, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct NodeDevice<'a> {
    /// The device.
    pub device: &'a Device,
    /// What it is.
    pub role: Role,
    /// Its PCI address; of a part, that of its GPU.
    pub address: Option<PciAddress>,
    graph: Option<&'a Topology>,
}

impl<'a> NodeDevice<'a> {
    /// The GPUs, their parts, the NICs and the places of a node, with or without a graph, in allocation order.
    pub fn all(view: &'a ClusterView, node: &str) -> impl Iterator<Item = Self> {
        let graph = view.topology(node).map(|graph| &**graph);
        // If its slices contradict each other, the node has no known devices, as for the scheduler.
        let published = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
        let known = published.into_iter().map(|device| (device.role(), device));
        let known = known.filter(|(role, _)| *role != Role::Other);
        known.map(move |(role, device)| {
            let address = device.address_by(&NodeNames { view, node });
            Self { device, role, address, graph }
        })
    }

    /// The function that has its port: a virtual function shares that of its physical function.
    pub fn port(&self) -> Option<PciAddress> {
        let address = self.address?;
        Some(self.graph.map_or(address, |graph| graph.port_of(address)))
    }

    /// What a NIC is for.
    pub fn nic_role(&self) -> NicRole {
        self.device.nic_role_in(self.graph, self.address)
    }
}

/// Where the graph of a node has devices that publish no address.
struct NodeNames<'a> {
    view: &'a ClusterView,
    node: &'a str,
}

impl DeviceNames for NodeNames<'_> {
    fn gpu(&self, uuid: &str) -> Option<PciAddress> {
        self.view.gpu_address(self.node, uuid)
    }

    fn nic(&self, name: NicName<'_>) -> Option<PciAddress> {
        self.view.nic_address(self.node, name)
    }
}

/// The GPUs, NICs and places of a node, with or without a graph, in allocation order.
pub fn published<'a>(
    view: &'a ClusterView,
    node: &str,
) -> impl Iterator<Item = (Role, &'a Device)> {
    let published = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
    let known = published.into_iter().map(|device| (device.role(), device));
    known.filter(|(role, _)| role.is_gpu() || role.is_nic())
}

/// The partitions of GPUs among devices of a node (MIG and the like), by the address that they share with
/// their GPU. A GPU is not free while one of its partitions is in use.
pub fn partitions(devices: &[NodeDevice<'_>]) -> BTreeMap<PciAddress, Vec<DeviceId>> {
    let mut partitions: BTreeMap<PciAddress, Vec<DeviceId>> = BTreeMap::new();
    for part in devices.iter().filter(|it| it.role == Role::Part) {
        let Some(address) = part.address else { continue };
        partitions.entry(address).or_default().push(part.device.id().clone());
    }
    partitions
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
        let published: Vec<NodeDevice<'a>> = NodeDevice::all(view, node).collect();
        let partitions = partitions(&published);
        let (gpus, nics) = (BTreeMap::new(), BTreeMap::new());
        let mut devices = Self { node, topology, gpus, nics, partitions };
        for NodeDevice { device, role, address, .. } in published {
            let Some(address) = address else { continue };
            match role {
                Role::Gpu => _ = devices.gpus.insert(address, device),
                Role::Nic | Role::Place => {
                    let Some(own) = rank(device, drivers) else { continue };
                    let known = devices.nics.get(&address).and_then(|known| rank(known, drivers));
                    if known.is_none_or(|known| own <= known) {
                        devices.nics.insert(address, device);
                    }
                }
                Role::Part | Role::Other => {}
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

    /// The level within which a plan keeps GPUs and NICs at least: a NUMA node, or a socket on a machine
    /// whose sockets have several.
    pub fn planned_level(&self) -> Level {
        let is_same = self.devices_by_cell(Level::Socket) == self.devices_by_cell(Level::Numa);
        if is_same { Level::Numa } else { Level::Socket }
    }

    fn devices_by_cell(&self, level: Level) -> BTreeSet<(Vec<PciAddress>, Vec<PciAddress>)> {
        self.cells(level).into_iter().map(|cell| (cell.gpus, cell.nics)).collect()
    }

    /// The number of cells with GPUs and compute NICs of which no device is in use.
    pub fn whole_cells(&self, level: Level, in_use: &AllocatedState) -> usize {
        self.cells(level)
            .iter()
            .filter(|cell| {
                let mut nics = cell.nics.iter().filter(|nic| self.is_compute(**nic)).peekable();
                !cell.gpus.is_empty()
                    && nics.peek().is_some()
                    && cell.gpus.iter().all(|gpu| self.is_gpu_unused(*gpu, in_use))
                    && nics.all(|nic| is_unused(self.nics.get(nic), in_use))
            })
            .count()
    }

    fn is_compute(&self, address: PciAddress) -> bool {
        let Some(nic) = self.nics.get(&address) else { return false };
        nic.nic_role_in(Some(self.topology), Some(address)) == NicRole::Compute
    }

    fn is_gpu_unused(&self, gpu: PciAddress, in_use: &AllocatedState) -> bool {
        is_unused(self.gpus.get(&gpu), in_use) && !is_divided(gpu, &self.partitions, in_use)
    }
}

/// The place of the driver of a NIC among these.
fn rank(nic: &Device, drivers: &[NicDriver]) -> Option<usize> {
    drivers.iter().position(|driver| *driver.driver == *nic.driver())
}

fn is_unused(device: Option<&&Device>, in_use: &AllocatedState) -> bool {
    device.is_some_and(|device| !in_use.is_taken(device.id()))
}

/// Whether a partition of a GPU is in use.
pub(crate) fn is_divided(
    gpu: PciAddress,
    partitions: &BTreeMap<PciAddress, Vec<DeviceId>>,
    in_use: &AllocatedState,
) -> bool {
    let mut parts = partitions.get(&gpu).into_iter().flatten();
    parts.any(|part| in_use.is_taken(part))
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

/// The value of a string attribute.
pub fn text<'a>(device: &'a Device, attribute: &str) -> Option<&'a str> {
    device.text(attribute)
}

/// The value of a whole-number attribute.
pub fn int(device: &Device, attribute: &str) -> Option<i64> {
    match device.attribute(attribute)? {
        AttributeValue::Int(value) => Some(*value),
        _ => None,
    }
}

/// A capacity of a device.
pub fn capacity_of<'a>(device: &'a Device, name: &str) -> Option<&'a DeviceCapacity> {
    let mut all = device.capacity().iter();
    all.find(|(known, _)| known.as_str() == name).map(|(_, capacity)| capacity)
}

/// Returns true if a boolean attribute exists and is true.
pub fn is_true(device: &Device, attribute: &str) -> bool {
    device.is_true(attribute)
}

/// The PCI address of a device of a node, as its driver publishes it or as the node's graph has it.
pub fn address_on(view: &ClusterView, node: &str, device: &Device) -> Option<PciAddress> {
    device.address_by(&NodeNames { view, node })
}

/// The parts of a driver's GPUs on a node that fulfil a condition, one for each GPU.
pub fn parts<'a>(
    view: &'a ClusterView,
    node: &str,
    part: &GpuDriver,
    is_wanted: impl Fn(&Device) -> bool,
) -> BTreeMap<PciAddress, &'a Device> {
    let mut parts = BTreeMap::new();
    for NodeDevice { device, address, .. } in NodeDevice::all(view, node) {
        let is_part = device.driver() == part.driver && part.is_whole(device);
        if is_part
            && is_wanted(device)
            && let Some(address) = address
        {
            parts.entry(address).or_insert(device);
        }
    }
    parts
}
