//! What this node's ResourceSlices say about a claim's devices, including those of other
//! drivers: the GPUs beside the NICs are known only from there.
//!
//! Preparation does not depend on it. What is unknown is left out of the files that
//! containers read.

use crate::prepare::capacities::{Capacities, amounts, bandwidth};
use cluster_model::published_device::{PublishedDevice as _, WireDevice};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use serde_json::Value;
use std::collections::BTreeMap;
use topology_graph::{PciAddress, Topology};

/// The devices of this node's slices, by driver, pool and name.
#[derive(Clone, Debug, Default)]
pub struct SliceDevices {
    devices: BTreeMap<[String; 3], Device>,
    is_read: bool,
}

impl SliceDevices {
    /// The devices of these slices. Of two generations of a pool, the newer one counts.
    pub fn new(mut slices: Vec<ResourceSlice>) -> Self {
        slices.sort_by_key(|slice| slice.spec.pool.generation);
        let devices = slices.into_iter().flat_map(|slice| {
            let (driver, pool) = (slice.spec.driver, slice.spec.pool.name);
            let devices = slice.spec.devices.unwrap_or_default().into_iter();
            devices.map(move |it| ([driver.clone(), pool.clone(), it.name.clone()], it))
        });
        Self { devices: devices.collect(), is_read: true }
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
            (key, device.clone())
        });
        self.devices.extend(named);
        self
    }

    /// Whether the slices could be read.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// The capacities of a device, which claims can share if it has any; `None` if it is unknown.
    pub fn capacities(&self, driver: &str, pool: &str, device: &str) -> Option<Capacities> {
        let capacities = self.device(driver, pool, device)?.capacity.iter().flatten();
        Some(amounts(capacities.map(|(name, capacity)| (name, &capacity.value))))
    }

    /// The bandwidth of a device that claims can share, in bits per second.
    pub fn bandwidth(&self, driver: &str, pool: &str, device: &str) -> Option<u64> {
        bandwidth(&self.capacities(driver, pool, device)?)
    }

    /// Whether this device is known.
    pub fn knows(&self, driver: &str, pool: &str, device: &str) -> bool {
        self.device(driver, pool, device).is_some()
    }

    /// One device; `None` if it is unknown.
    pub fn device(&self, driver: &str, pool: &str, device: &str) -> Option<&Device> {
        self.devices.get(&[driver.to_owned(), pool.to_owned(), device.to_owned()])
    }

    /// The device's attributes as JSON, as in the slice.
    pub fn json(&self, driver: &str, pool: &str, device: &str) -> BTreeMap<String, Value> {
        let device = self.device(driver, pool, device);
        let attributes = device.and_then(|device| device.attributes.as_ref());
        attributes
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), serde_json::to_value(value).ok()?)))
            .collect()
    }

    /// PCI address and UUID of another driver's device: as its driver publishes them, otherwise the address
    /// that this machine's topology has under its UUID or name.
    pub fn place(
        &self,
        [driver, pool, device]: [&str; 3],
        topology: &Topology,
    ) -> (Option<PciAddress>, Option<String>) {
        let Some(device) = self.device(driver, pool, device) else { return (None, None) };
        let device = WireDevice { driver, device };
        (device.address_by(topology), device.uuid().map(str::to_owned))
    }
}
