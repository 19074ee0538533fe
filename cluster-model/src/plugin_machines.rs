//! The distinct machines whose GPUs a device plugin offers. No DRA driver publishes these GPUs: the
//! graph of a node says where they are, and its status how many the device plugin has.

use crate::gpu_drivers::{self, GpuDriver};
use crate::machines::{Found, Machine, NicSelection, alike, keep_nics};
use crate::node_devices::{NodeDevices, Role, published};
use crate::view::ClusterView;
use dra_allocator::{Device, DeviceId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use topology_graph::{NicRole, PciAddress, Topology};

/// Stands for every GPU of a device plugin: no attribute of theirs is published.
static GPU: LazyLock<Device> = LazyLock::new(|| {
    Device::bare(DeviceId { driver: "".into(), pool: "".into(), device: "gpu".into() })
});

/// The devices that a pod with a limit on an extended resource may get.
#[derive(Clone, Copy, Debug)]
pub struct PluginSelection<'a> {
    /// The entry of the GPUs in the table of drivers.
    pub gpu_driver: &'static GpuDriver,
    /// The extended resource of the GPUs.
    pub resource: &'a str,
    /// The NICs.
    pub nics: NicSelection<'a>,
}

/// Returns true if a node's GPUs are offered by a device plugin and by no DRA driver.
pub fn is_plugin_node(view: &ClusterView, node: &str, resource: &str) -> bool {
    view.plugin_units(node, resource).is_some()
        && !published(view, node).any(|(role, _)| role == Role::Gpu)
}

/// Returns true if a node's device plugin has as many units of the resource as the node's graph has
/// GPUs of the driver, so that one unit is one whole GPU.
pub fn has_whole_units(view: &ClusterView, node: &str, driver: &GpuDriver, resource: &str) -> bool {
    let graph = view.topology(node).map(|graph| graph.gpus()).unwrap_or_default();
    let gpus = graph.iter().filter(|gpu| gpu.vendor == driver.pci_vendor).count();
    let units = view.plugin_units(node, resource);
    gpus > 0 && units.is_some_and(|units| u64::try_from(gpus) == Ok(units))
}

/// Returns true if each unit of a node's device plugin is one whole GPU of the node's graph. There are fewer
/// units than GPUs if some GPUs are divided (MIG, strategy `mixed`), and more with time slicing.
pub fn are_units_whole(view: &ClusterView, node: &str, driver: &GpuDriver, resource: &str) -> bool {
    let units = view.plugin_units(node, resource).and_then(|units| usize::try_from(units).ok());
    let gpus = view.topology(node).map(|graph| gpus(graph, driver).len()).unwrap_or_default();
    units.is_some_and(|units| units <= gpus)
}

/// The devices of a node; the GPUs are those of its device plugin, if no DRA driver publishes any.
/// `None` if the node has published no graph.
pub(crate) fn with_plugin_gpus<'a>(
    view: &'a ClusterView,
    node: &'a str,
) -> Option<NodeDevices<'a>> {
    let mut devices = NodeDevices::new(view, node)?;
    for driver in gpu_drivers::all().iter().filter(|_| devices.gpus.is_empty()) {
        let mut resources = driver.extended_resources.iter();
        if resources.any(|resource| has_whole_units(view, node, driver, resource)) {
            devices.gpus = gpus(devices.topology, driver);
            break;
        }
    }
    Some(devices)
}

/// The GPUs of a driver in a graph.
fn gpus<'a>(graph: &Topology, driver: &GpuDriver) -> BTreeMap<PciAddress, &'a Device> {
    let gpus = graph.gpus().iter().filter(|gpu| gpu.vendor == driver.pci_vendor);
    gpus.map(|gpu| (gpu.address, &*GPU)).collect()
}

/// The GPUs of a node of which a device plugin offers whole ones.
pub(crate) struct PluginGpus {
    /// The extended resource.
    pub(crate) resource: &'static str,
    /// All GPUs of the driver in the node's graph.
    pub(crate) gpus: BTreeSet<PciAddress>,
    /// How many of them it does not offer as whole ones; it is not known which.
    pub(crate) divided: usize,
}

/// The GPUs of a node of which a device plugin offers whole ones; `None` if none does, or a DRA driver
/// publishes GPUs there.
pub(crate) fn plugin_gpus(view: &ClusterView, node: &str) -> Option<PluginGpus> {
    let graph = view.topology(node)?;
    let (driver, resource) = gpu_drivers::all().iter().find_map(|driver| {
        let mut resources = driver.extended_resources.iter();
        let resource = resources.find(|it| are_units_whole(view, node, driver, it))?;
        Some((driver, *resource))
    })?;
    let gpus: BTreeSet<PciAddress> = gpus(graph, driver).into_keys().collect();
    let units = view.plugin_units(node, resource).and_then(|units| usize::try_from(units).ok())?;
    let divided = gpus.len().saturating_sub(units);
    is_plugin_node(view, node, resource).then_some(PluginGpus { resource, gpus, divided })
}

/// Returns the machines with selected NICs whose device plugin offers whole GPUs. Those with most
/// nodes come first.
pub fn plugin_machines<'a>(
    view: &'a ClusterView,
    selection: &PluginSelection<'_>,
    filter: impl Fn(&str) -> bool,
) -> Vec<Machine<'a>> {
    let kind = (selection.gpu_driver, selection.nics.only_shared);
    alike(view, kind, filter, |node| found(view, node, selection))
}

fn found<'a>(
    view: &'a ClusterView,
    node: &'a str,
    selection: &PluginSelection<'_>,
) -> Option<Found<'a>> {
    let PluginSelection { gpu_driver, resource, nics } = *selection;
    if !is_plugin_node(view, node, resource) || !has_whole_units(view, node, gpu_driver, resource) {
        return None;
    }
    let drivers = std::slice::from_ref(nics.nic_driver);
    let devices = NodeDevices::with_nics_of(view, node, drivers)?;
    complete(view, devices, selection)
}

/// Adds the device plugin's GPUs, and keeps the NICs that the claim may draw from.
fn complete<'a>(
    view: &'a ClusterView,
    mut devices: NodeDevices<'a>,
    selection: &PluginSelection<'_>,
) -> Option<Found<'a>> {
    devices.gpus = gpus(devices.topology, selection.gpu_driver);
    let other_nics = keep_nics(view, &mut devices, selection.nics);
    let beside = Default::default();
    (!devices.nics.is_empty()).then_some(Found { devices, other_nics, beside })
}

/// Returns the machines whose device plugin offers whole GPUs and that bind NICs late: their drivers
/// publish places, which stand for any free NIC. Each place has the address of a compute NIC of the
/// graph here, so that the machine shows how near its NICs are; which of them a pod gets is decided
/// when it starts. Those with most nodes come first.
pub fn late_machines<'a>(
    view: &'a ClusterView,
    selection: &PluginSelection<'_>,
    filter: impl Fn(&str) -> bool,
) -> Vec<Machine<'a>> {
    let kind = (selection.gpu_driver, selection.nics.only_shared);
    alike(view, kind, filter, |node| found_late(view, node, selection))
}

fn found_late<'a>(
    view: &'a ClusterView,
    node: &'a str,
    selection: &PluginSelection<'_>,
) -> Option<Found<'a>> {
    let PluginSelection { gpu_driver, resource, .. } = *selection;
    if !is_plugin_node(view, node, resource) || !are_units_whole(view, node, gpu_driver, resource) {
        return None;
    }
    let mut devices = NodeDevices::with_nics_of(view, node, &[])?;
    let compute = devices.topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
    devices.nics = compute.map(|nic| nic.address).zip(places(view, node)).collect();
    complete(view, devices, selection)
}

/// The devices of a node that stand for any of its NICs.
pub fn places<'a>(view: &'a ClusterView, node: &str) -> impl Iterator<Item = &'a Device> {
    published(view, node).filter(|(role, _)| *role == Role::Place).map(|(_, place)| place)
}
