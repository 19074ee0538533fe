//! The NIC drivers of this process's table. A new driver is a new entry in `drivers/nic.rs` or in the
//! operator's file ([`crate::drivers`]), without code.

pub use crate::drivers::nic::{GraphName, NameSource, NicDriver, OURS, OURS_BY_CLASS, Rdma};
use crate::drivers::table;
use crate::names;
use dra_allocator::Device;

/// All drivers, in the order in which they are tried in a cluster with several.
pub fn all() -> &'static [NicDriver] {
    &table().nics
}

/// The driver with this name.
pub fn by_name(driver: &str) -> Option<&'static NicDriver> {
    all().iter().find(|known| known.driver == driver)
}

impl NicDriver {
    /// Whether a device of this driver has a network interface, as far as the driver says.
    pub fn may_have_interface(&self, nic: &Device) -> bool {
        self.interface_attribute.is_none_or(|name| nic.attribute(name).is_some())
    }

    /// Whether this is the driver of this project.
    pub fn is_ours(&self) -> bool {
        self.driver == names::DRIVER
    }
}
