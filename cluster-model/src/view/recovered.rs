//! What would be if devices recovered: those that are down, degraded or tainted now.

use super::ClusterView;
use crate::published_device::{PublishedDevice as _, recover};
use dra_allocator::{Device, DeviceId, Inventory};

impl ClusterView {
    /// Supposes that a NIC or another device recovered: it has no taint, its port is active and its
    /// PCIe link is not degraded.
    pub fn suppose_recovered(&mut self, device: &DeviceId) {
        recover(&mut self.inventory, device);
        self.revision.epoch += 1;
        self.versions.everything_changed();
    }

    /// What decides on a node as if all its devices recovered. `None` if each of them is in order.
    pub fn recovered(&self, node: &str) -> Option<Inventory> {
        let devices = self.inventory.devices_on(node, &self.settings).ok()?;
        let troubled: Vec<&Device> =
            devices.into_iter().filter(|device| device.trouble().is_some()).collect();
        if troubled.is_empty() {
            return None;
        }
        let mut inventory = self.inventory.of_node(node);
        for device in troubled {
            recover(&mut inventory, device.id());
        }
        Some(inventory)
    }
}
