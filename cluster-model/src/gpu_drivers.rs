//! What is known of each GPU driver's ResourceSlices. A new driver is an entry
//! in the table, not code.

/// PCI vendor id of NVIDIA.
const PCI_VENDOR_NVIDIA: u16 = 0x10de;
/// PCI vendor id of AMD.
const PCI_VENDOR_AMD: u16 = 0x1002;
/// PCI vendor id of Intel.
const PCI_VENDOR_INTEL: u16 = 0x8086;

/// One GPU driver and the attributes by which its devices can be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuDriver {
    /// DRA driver name, `gpu.nvidia.com`.
    pub driver: &'static str,
    /// PCI vendor id of the GPUs that it serves.
    pub pci_vendor: u16,
    /// Attribute that is the same on every whole GPU, where the driver has one;
    /// its fully qualified name may also stand on a NIC, with another value, to
    /// tell kinds apart.
    pub kind_attribute: Option<&'static str>,
    /// Value of `kind_attribute` on a whole GPU.
    pub gpu_kind: &'static str,
    /// Attribute with the GPU's UUID, where the driver publishes one.
    pub uuid_attribute: Option<&'static str>,
    /// The driver's own NUMA attribute, where it has one beside the standard.
    pub numa_attribute: Option<&'static str>,
    /// Extended resources in container limits that mean one whole GPU.
    pub extended_resources: &'static [&'static str],
    /// Beginnings of the names of extended resources that mean a part or a
    /// share of a GPU.
    pub partial_resources: &'static [&'static str],
}

/// Value of a driver's kind attribute on our NICs.
pub const NIC_KIND: &str = "nic";

/// The drivers, in the order in which a cluster with several is searched.
pub const GPU_DRIVERS: &[GpuDriver] = &[
    GpuDriver {
        driver: "gpu.nvidia.com",
        pci_vendor: PCI_VENDOR_NVIDIA,
        kind_attribute: Some("gpu.nvidia.com/type"),
        gpu_kind: "gpu",
        uuid_attribute: Some("gpu.nvidia.com/uuid"),
        numa_attribute: None,
        extended_resources: &["nvidia.com/gpu"],
        // Names that NVIDIA's device plugin gives to MIG and time-sliced devices.
        partial_resources: &["nvidia.com/mig-", "nvidia.com/gpu."],
    },
    GpuDriver {
        driver: "gpu.amd.com",
        pci_vendor: PCI_VENDOR_AMD,
        kind_attribute: Some("gpu.amd.com/type"),
        gpu_kind: "amdgpu",
        uuid_attribute: None,
        numa_attribute: Some("gpu.amd.com/numaNode"),
        extended_resources: &["amd.com/gpu"],
        // Names that AMD's device plugin gives to partitions.
        partial_resources: &["amd.com/cpx_", "amd.com/dpx_", "amd.com/qpx_", "amd.com/spx_"],
    },
    GpuDriver {
        driver: "gpu.intel.com",
        pci_vendor: PCI_VENDOR_INTEL,
        // It publishes `type`, of which no value has been seen in a live slice.
        kind_attribute: None,
        gpu_kind: "",
        uuid_attribute: None,
        numa_attribute: None,
        extended_resources: &["gpu.intel.com/i915", "gpu.intel.com/xe"],
        // Tiles, shares and monitors of GPUs.
        partial_resources: &["gpu.intel.com/"],
    },
];

/// The driver with this name.
pub fn by_name(driver: &str) -> Option<&'static GpuDriver> {
    GPU_DRIVERS.iter().find(|known| known.driver == driver)
}

/// The driver of GPUs with this PCI vendor id.
pub fn by_pci_vendor(vendor: u16) -> Option<&'static GpuDriver> {
    GPU_DRIVERS.iter().find(|known| known.pci_vendor == vendor)
}
