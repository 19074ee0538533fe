//! What this node's ResourceSlices say about a claim's devices, including those of other
//! drivers: the GPUs beside the NICs are known only from there.
//!
//! Preparation does not depend on it. What is unknown is left out of the files that
//! containers read.

use crate::prepare::capacities::{Capacities, amounts, bandwidth};
use cluster_model::gpu_drivers;
use cluster_model::names::{attribute::PCI_BUS_ID, split};
use cluster_model::node_devices::address_in_name;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, ResourceSlice};
use serde_json::Value;
use std::collections::BTreeMap;
use topology_graph::{PciAddress, Topology};

/// Attributes by name.
pub type Attributes = BTreeMap<String, DeviceAttribute>;

/// The devices of this node's slices, by driver, pool and name.
#[derive(Clone, Debug, Default)]
pub struct Published {
    devices: BTreeMap<[String; 3], Attributes>,
    /// Capacities of the devices; claims can share those that have any.
    capacities: BTreeMap<[String; 3], Capacities>,
    is_read: bool,
}

impl Published {
    /// The devices of these slices. Of two generations of a pool, the newer one counts.
    pub fn new(mut slices: Vec<ResourceSlice>) -> Self {
        slices.sort_by_key(|slice| slice.spec.pool.generation);
        let mut capacities = BTreeMap::new();
        let devices = slices.into_iter().flat_map(|slice| {
            let spec = slice.spec;
            let key = move |device: &Device| {
                [spec.driver.clone(), spec.pool.name.clone(), device.name.clone()]
            };
            let devices = spec.devices.unwrap_or_default();
            // A newer generation may have none.
            for device in &devices {
                capacities.insert(key(device), capacities_of(device));
            }
            devices
                .into_iter()
                .map(move |device| (key(&device), device.attributes.unwrap_or_default()))
        });
        let devices = devices.collect();
        Self { devices, capacities, is_read: true }
    }

    /// Adds devices that the slices do not have.
    #[must_use]
    pub fn with<'d>(
        mut self,
        [driver, pool]: [&str; 2],
        devices: impl Iterator<Item = &'d Device>,
    ) -> Self {
        let named = devices.map(|device| {
            let key = [driver.to_owned(), pool.to_owned(), device.name.clone()];
            (key, device.attributes.clone().unwrap_or_default())
        });
        self.devices.extend(named);
        self
    }

    /// Whether the slices could be read.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// The capacities of a device; `None` if it is unknown.
    pub fn capacities(&self, driver: &str, pool: &str, device: &str) -> Option<&Capacities> {
        self.capacities.get(&[driver.to_owned(), pool.to_owned(), device.to_owned()])
    }

    /// The bandwidth of a device that claims can share, in bits per second.
    pub fn bandwidth(&self, driver: &str, pool: &str, device: &str) -> Option<u64> {
        bandwidth(self.capacities(driver, pool, device)?)
    }

    /// The attributes of one device; `None` if it is unknown.
    pub fn attributes(&self, driver: &str, pool: &str, device: &str) -> Option<&Attributes> {
        self.devices.get(&[driver.to_owned(), pool.to_owned(), device.to_owned()])
    }

    /// The device's attributes as JSON, as in the slice.
    pub fn json(&self, driver: &str, pool: &str, device: &str) -> BTreeMap<String, Value> {
        let attributes = self.attributes(driver, pool, device).into_iter().flatten();
        attributes
            .filter_map(|(name, value)| Some((name.clone(), serde_json::to_value(value).ok()?)))
            .collect()
    }

    /// PCI address and UUID of another driver's device: as its driver publishes them,
    /// otherwise as this machine's topology has them under that UUID.
    pub fn place(
        &self,
        [driver, pool, device]: [&str; 3],
        topology: &Topology,
    ) -> (Option<PciAddress>, Option<String>) {
        let Some(attributes) = self.attributes(driver, pool, device) else { return (None, None) };
        let text = |name: &str| text(attributes, driver, name);
        let known = gpu_drivers::by_name(driver);
        let uuid = known.and_then(|known| known.uuid_attribute).and_then(text);
        let own = known.and_then(|known| known.address_attribute).and_then(text);
        let said = text(PCI_BUS_ID).or(own).and_then(|address| address.parse().ok());
        let is_in_name = known.is_some_and(|known| known.is_named_by_address);
        let said = said.or_else(|| address_in_name(device).filter(|_| is_in_name));
        let address = said.or_else(|| {
            let uuid = uuid?;
            let gpu = topology.gpus().iter().find(|gpu| gpu.uuid.as_deref() == Some(uuid))?;
            Some(gpu.address)
        });
        (address, uuid.map(str::to_owned))
    }
}

fn capacities_of(device: &Device) -> Capacities {
    amounts(device.capacity.iter().flatten().map(|(name, capacity)| (name, &capacity.value)))
}

/// A string attribute by its qualified name, or by its plain name, which means the same
/// in a slice of this driver.
fn text<'a>(attributes: &'a Attributes, driver: &str, name: &str) -> Option<&'a str> {
    let plain = split(name).filter(|(domain, _)| *domain == driver).map(|(_, plain)| plain);
    let found = attributes.get(name).or_else(|| attributes.get(plain?));
    found?.string.as_deref()
}
