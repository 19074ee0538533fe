//! The PCI classes used here (`include/linux/pci_ids.h`): 24 bits, the upper eight of which are the
//! base class.

const STORAGE_NVME: u32 = 0x01_08;
const NETWORK: u32 = 0x02;
const INFINIBAND: u32 = 0x02_07;
/// The base class of display controllers.
pub const DISPLAY: u32 = 0x03;
const BRIDGE: u32 = 0x06;
/// The base class of processing accelerators.
pub const ACCELERATOR: u32 = 0x12;
/// A PCI-to-PCI bridge; every root port and switch port is one.
pub const PCI_BRIDGE: u32 = 0x06_0400;
/// A 3D controller, which most GPUs in servers are.
pub const DISPLAY_3D: u32 = 0x03_0200;
/// An Ethernet controller.
pub const ETHERNET: u32 = 0x02_0000;
/// A display controller of no other kind, which AMD's GPUs in servers are.
pub const DISPLAY_OTHER: u32 = 0x03_8000;
/// The class of NVIDIA's NVSwitch.
pub const NVSWITCH: u32 = 0x06_8000;

/// Returns true for network controllers.
pub fn is_network(class: u32) -> bool {
    class >> 16 == NETWORK
}

/// Returns true for InfiniBand controllers, which is a `ConnectX` with an InfiniBand port.
pub fn is_infiniband(class: u32) -> bool {
    class >> 8 == INFINIBAND
}

/// Returns true for display controllers.
pub fn is_display(class: u32) -> bool {
    class >> 16 == DISPLAY
}

/// Returns true for processing accelerators.
pub fn is_accelerator(class: u32) -> bool {
    class >> 16 == ACCELERATOR
}

/// Returns true for the classes of GPUs: display controllers and accelerators.
pub fn is_gpu(class: u32) -> bool {
    is_display(class) || is_accelerator(class)
}

/// Returns true for all kinds of bridges.
pub fn is_bridge(class: u32) -> bool {
    class >> 16 == BRIDGE
}

/// Returns true for NVMe controllers.
pub fn is_nvme(class: u32) -> bool {
    class >> 8 == STORAGE_NVME
}
