//! The accelerator drivers of this process's table. A new driver is a new entry in `drivers/gpu.rs` or
//! in the operator's file ([`crate::drivers`]), without code.

pub use crate::drivers::gpu::{GpuDriver, NONE, Part};
use crate::drivers::table;

/// The value of a driver's kind attribute on our NICs.
pub const NIC_KIND: &str = "nic";

/// All drivers, in the order in which they are tried in a cluster with several.
pub fn all() -> &'static [GpuDriver] {
    &table().accelerators
}

/// The parts of GPUs that claims can request, such as MIG devices.
pub fn parts() -> &'static [GpuDriver] {
    &table().parts
}

/// Whether an extended resource is whole GPUs of a device plugin.
pub fn is_resource(name: &str) -> bool {
    all().iter().any(|driver| driver.extended_resources.contains(&name))
}

/// The driver with this name.
pub fn by_name(driver: &str) -> Option<&'static GpuDriver> {
    all().iter().find(|known| known.driver == driver)
}

/// The driver for GPUs with this PCI vendor ID.
pub fn by_pci_vendor(vendor: u16) -> Option<&'static GpuDriver> {
    all().iter().find(|known| known.pci_vendor == vendor)
}
