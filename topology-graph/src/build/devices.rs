//! Finds GPUs and NICs, and what is above them in sysfs.

use super::{Branches, about};
use crate::class::{PCI_BRIDGE, is_display, is_network, is_nvme};
use crate::graph::{Branch, Place, Role, Vertex};
use crate::snapshot::PciFunction;
use crate::vendor::{AMD, INTEL};
use crate::{Accelerator, Anomaly, AnomalyKind, PciAddress, Snapshot};

pub(super) fn add(
    snapshot: &Snapshot,
    accelerators: &[Accelerator],
    branches: &mut Branches,
    anomalies: &mut Vec<Anomaly>,
) {
    for function in &snapshot.pci {
        let rdma = snapshot.rdma_device(function.address);
        let Some(role) = role(function, accelerators, rdma.is_some()) else { continue };
        if role == Role::Gpu && !is_whole_gpu(function, snapshot) {
            continue;
        }
        let link_layer = rdma.and_then(|rdma| rdma.ports.iter().find_map(|port| port.link_layer));
        let rdma = rdma.is_some();
        let physical_function = physical_function(function, snapshot).map(Place::Function);
        let vertex = Vertex { link_layer, rdma, physical_function, ..vertex(function, role) };
        let place = vertex.place;
        let above = add_above(function, snapshot, branches);
        // A parent is always added before its child, so that no snapshot can cause a loop: a device
        // that is also another device's bridge keeps its place.
        let parent = branches.get(&place).map_or(above, |known| known.parent);
        branches.insert(place, Branch { vertex, parent, data_path: None });
        anomalies.extend(degraded(function, snapshot).filter(|_| role.is_device()));
    }
    add_data_paths(snapshot, branches);
}

/// Adds the functions that move the data of NICs, each with the NICs of its adapter.
fn add_data_paths(snapshot: &Snapshot, branches: &mut Branches) {
    for function in snapshot.pci.iter().filter(|function| function.is_data_direct()) {
        let Some(adapter) = &function.vpd_v3 else { continue };
        let nics = snapshot.pci.iter().filter(|nic| nic.vpd_v3.as_ref() == Some(adapter));
        let nics: Vec<Place> = nics
            .map(|nic| Place::Function(nic.address))
            .filter(|place| branches.get(place).is_some_and(|nic| nic.role() == Role::Nic))
            .collect();
        let place = Place::Function(function.address);
        if nics.is_empty() || branches.contains_key(&place) {
            continue;
        }
        let parent = add_above(function, snapshot, branches);
        let vertex = Vertex { numa: None, ..vertex(function, Role::DataPath) };
        branches.insert(place, Branch { vertex, parent, data_path: None });
        for nic in nics {
            if let Some(branch) = branches.get_mut(&nic) {
                branch.data_path = Some(place);
            }
        }
    }
}

/// The physical function, if it is on this machine. A virtual machine shows only the virtual
/// function, which then counts as a separate NIC.
fn physical_function(function: &PciFunction, snapshot: &Snapshot) -> Option<PciAddress> {
    let physical = snapshot.function(function.physical_function?)?;
    let has_rdma = snapshot.rdma_device(physical.address).is_some();
    let is_nic = role(physical, &[], has_rdma) == Some(Role::Nic);
    (is_nic && physical.physical_function.is_none()).then_some(physical.address)
}

fn role(function: &PciFunction, accelerators: &[Accelerator], has_rdma: bool) -> Option<Role> {
    let mut known = Accelerator::BUILT_IN.iter().chain(accelerators);
    match function.class {
        _ if function.is_data_direct() => None,
        class if is_network(class) => Some(Role::Nic),
        class if known.any(|it| it.is(function.vendor, class)) => Some(Role::Gpu),
        class if is_nvme(class) => Some(Role::Nvme),
        // eRDMA of Alibaba has class 0x00ff.
        _ if has_rdma => Some(Role::Nic),
        _ => None,
    }
}

/// Returns false for a virtual function of a GPU that is on this machine, which is a part of it, and
/// for a GPU that is a part of a CPU and has no PCIe of its own.
fn is_whole_gpu(function: &PciFunction, snapshot: &Snapshot) -> bool {
    let physical = function.physical_function.and_then(|address| snapshot.function(address));
    physical.is_none() && !is_integrated(function)
}

/// Intel's is always device 2 on the first root bus, where a hypervisor may put a card too. AMD's have
/// device IDs of their own. IDs are those of the PCI ID database: of Intel DG1, Arc, Flex, Max and
/// Battlemage, and of AMD from Kaveri to Strix Halo.
fn is_integrated(function: &PciFunction) -> bool {
    match (function.vendor, function.device) {
        (INTEL, 0x0bd0..=0x0bdb | 0x4905..=0x4909 | 0x5690..=0x56cf | 0xe202..=0xe2ff) => false,
        (INTEL, _) => {
            let address = function.address;
            is_display(function.class)
                && (address.domain(), address.bus(), address.device()) == (0, 0, 2)
        }
        (AMD, device) => matches!(device, 0x1300..=0x19ff | 0x9830..=0x98ff),
        _ => false,
    }
}

fn vertex(function: &PciFunction, role: Role) -> Vertex {
    Vertex {
        class: Some(function.class),
        id: Some((function.vendor, function.device)),
        numa: function.numa_node,
        max_link: function.max_link,
        ..Vertex::new(Place::Function(function.address), role)
    }
}

/// Adds the root bus and bridges above a function; returns the lowest.
fn add_above(
    function: &PciFunction,
    snapshot: &Snapshot,
    branches: &mut Branches,
) -> Option<Place> {
    let mut parent = None;
    if let Some(root) = function.root {
        let place = Place::Root(root);
        branches.entry(place).or_insert_with(|| Branch::new(place, Role::HostBridge));
        parent = Some(place);
    }
    for &address in &function.bridges {
        let place = Place::Function(address);
        branches.entry(place).or_insert_with(|| bridge(address, parent, snapshot));
        parent = Some(place);
    }
    parent
}

fn bridge(address: PciAddress, parent: Option<Place>, snapshot: &Snapshot) -> Branch {
    // A function without facts must be a bridge, because devices are below it.
    let vertex = snapshot.function(address).map_or_else(
        || Vertex {
            class: Some(PCI_BRIDGE),
            ..Vertex::new(Place::Function(address), Role::SwitchPort)
        },
        |f| vertex(f, Role::SwitchPort),
    );
    // A bridge has the NUMA node of its host bridge, and no distance is measured to it.
    Branch { vertex: Vertex { numa: None, ..vertex }, parent, data_path: None }
}

/// Reports a link that is narrower than both ends support, or for a NIC also slower. The speed of a
/// GPU's link does not count: an idle GPU slows it down.
pub(super) fn degraded(function: &PciFunction, snapshot: &Snapshot) -> Option<Anomaly> {
    let (now, best) = (function.current_link?, snapshot.attainable_link(function)?);
    let slow = now.megatransfers < best.megatransfers && is_network(function.class);
    let detail = format!("the link runs at {now}, but supports {best}");
    (slow || now.width < best.width)
        .then(|| about(function.address, AnomalyKind::LinkDegraded, detail))
}
