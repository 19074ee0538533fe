//! Reads RDMA devices from RDMA netlink (`drivers/infiniband/core/nldev.c`), to complete
//! those from sysfs.
//!
//! Netlink reports the devices of this process's network namespace, their GUIDs, and the
//! interface of each port, which identifies a soft RDMA device without a parent. Rate, GIDs
//! and character devices are only in sysfs. On a machine without RDMA, with an old kernel or
//! from a recording, all facts come from sysfs.

mod devices;
pub(crate) mod monitor;

pub(crate) use devices::read;
pub use devices::{Port, RdmaLink, devices_in};

use topology_graph::{PciAddress, RdmaDevice, RdmaPort, Snapshot};

/// Completes the devices that were read from sysfs. Facts from sysfs are never replaced.
pub fn complete(snapshot: &mut Snapshot, devices: &[RdmaLink]) {
    for device in devices {
        let function = function(snapshot, device);
        let known = snapshot.rdma.iter_mut().find(|known| known.name == device.name);
        if let Some(known) = known {
            complete_device(known, device, function);
        } else {
            let mut new = RdmaDevice {
                name: device.name.clone(),
                pci: None,
                part: None,
                node_guid: None,
                sys_image_guid: None,
                ports: Vec::new(),
                uverbs: Vec::new(),
                umad: Vec::new(),
                issm: Vec::new(),
            };
            complete_device(&mut new, device, function);
            snapshot.rdma.push(new);
        }
    }
    snapshot.rdma.sort_by(|a, b| a.name.cmp(&b.name));
}

/// The function of the first port's interface.
fn function(snapshot: &Snapshot, device: &RdmaLink) -> Option<PciAddress> {
    let netdev = device.ports.iter().find_map(|port| port.netdev.as_deref())?;
    snapshot.netdevs.iter().find(|known| known.name == netdev)?.pci
}

fn complete_device(known: &mut RdmaDevice, device: &RdmaLink, function: Option<PciAddress>) {
    known.pci = known.pci.or(function);
    known.node_guid = known.node_guid.take().or_else(|| device.node_guid.clone());
    known.sys_image_guid = known.sys_image_guid.take().or_else(|| device.sys_image_guid.clone());
    for port in &device.ports {
        let index = known.ports.binary_search_by_key(&port.number, |known| known.number);
        let index = index.unwrap_or_else(|index| {
            let new = RdmaPort {
                number: port.number,
                state: None,
                rate_megabits: None,
                link_layer: device.link_layer,
                subnet: None,
            };
            known.ports.insert(index, new);
            index
        });
        if let Some(known) = known.ports.get_mut(index) {
            known.state = known.state.or(port.state);
        }
    }
}

#[cfg(test)]
mod tests;
