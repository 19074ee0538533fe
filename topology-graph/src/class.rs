//! PCI classes that matter here, `include/linux/pci_ids.h`: 24 bits, of which the
//! upper eight are the base class.

const STORAGE_NVME: u32 = 0x01_08;
const NETWORK: u32 = 0x02;
const DISPLAY: u32 = 0x03;
const BRIDGE: u32 = 0x06;
const ACCELERATOR: u32 = 0x12;
/// A bridge from PCI to PCI, which every port of a switch and of a root is.
pub(crate) const PCI_BRIDGE: u32 = 0x06_0400;
/// What NVIDIA's NVSwitch says it is.
pub(crate) const NVSWITCH: u32 = 0x06_8000;

/// Network controllers.
pub(crate) fn is_network(class: u32) -> bool {
    class >> 16 == NETWORK
}

/// Display controllers.
pub(crate) fn is_display(class: u32) -> bool {
    class >> 16 == DISPLAY
}

/// Processing accelerators.
pub(crate) fn is_accelerator(class: u32) -> bool {
    class >> 16 == ACCELERATOR
}

/// What GPUs are: display controllers and accelerators.
pub(crate) fn is_gpu(class: u32) -> bool {
    is_display(class) || is_accelerator(class)
}

/// Bridges of all sorts.
pub(crate) fn is_bridge(class: u32) -> bool {
    class >> 16 == BRIDGE
}

/// NVMe controllers.
pub(crate) fn is_nvme(class: u32) -> bool {
    class >> 8 == STORAGE_NVME
}
