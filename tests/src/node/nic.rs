//! The NICs of a planted machine.

/// An Ethernet NIC: a PCI function of the planted machine with a real link as its interface.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Its PCI address.
    pub address: &'static str,
    /// Its interface.
    pub link: &'static str,
}

impl Nic {
    /// Its device name in a slice.
    pub fn device(&self) -> String {
        device_name(self.address)
    }
}

/// The device name in a slice for the NIC at this PCI address.
pub fn device_name(address: &str) -> String {
    format!("pci-{}", address.replace([':', '.'], "-"))
}
