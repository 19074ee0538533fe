//! RDMA devices as RDMA netlink tells of them
//! (`drivers/infiniband/core/nldev.c`), beside what sysfs tells.
//!
//! Netlink knows the devices of this process's network namespace, their GUIDs,
//! and the interface of each port, by which a soft RDMA device is known that has
//! no parent. Rate, GIDs and character devices are in sysfs alone. A machine
//! without RDMA, an old kernel and a recorded machine have nothing to tell;
//! everything then is from sysfs.

mod devices;
pub(crate) mod monitor;
mod netns;
pub(crate) mod wire;

pub(crate) use devices::read;
pub use devices::{Device, Port, devices_in};
pub use netns::NetnsMode;
pub(crate) use netns::netns_mode;

use topology_graph::{PciAddress, RdmaDevice, RdmaPort, Snapshot};

/// Completes what was read from sysfs; what sysfs tells is kept.
pub fn complete(snapshot: &mut Snapshot, devices: &[Device]) {
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
fn function(snapshot: &Snapshot, device: &Device) -> Option<PciAddress> {
    let netdev = device.ports.iter().find_map(|port| port.netdev.as_deref())?;
    snapshot.netdevs.iter().find(|known| known.name == netdev)?.pci
}

fn complete_device(known: &mut RdmaDevice, device: &Device, function: Option<PciAddress>) {
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
