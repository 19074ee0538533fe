//! The accelerator drivers that are built in: how each one publishes its ResourceSlices.

/// The PCI vendor ID of NVIDIA.
const PCI_VENDOR_NVIDIA: u16 = 0x10de;
/// The PCI vendor ID of AMD.
const PCI_VENDOR_AMD: u16 = 0x1002;
/// The PCI vendor ID of Intel.
const PCI_VENDOR_INTEL: u16 = 0x8086;

/// A GPU driver, with the attributes that joins can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuDriver {
    /// The DRA driver name, `gpu.nvidia.com`.
    pub driver: &'static str,
    /// The DeviceClass that its installation creates for these devices.
    pub class: &'static str,
    /// The PCI vendor ID of its GPUs.
    pub pci_vendor: u16,
    /// The attribute that has the same value on every such device, if the driver has one. A NIC may
    /// carry its fully qualified name with another value, so that constraints can distinguish the
    /// two.
    pub kind_attribute: Option<&'static str>,
    /// The value of `kind_attribute` on such a device.
    pub gpu_kind: &'static str,
    /// The attribute with the GPU's UUID, if the driver publishes one.
    pub uuid_attribute: Option<&'static str>,
    /// The driver's own attribute with the PCI address, from before the standard one.
    pub address_attribute: Option<&'static str>,
    /// Whether the name of a device begins with its PCI address: `0000-4d-00-0`.
    pub is_named_by_address: bool,
    /// The driver's own NUMA attribute, if it has one besides the standard one.
    pub numa_attribute: Option<&'static str>,
    /// Extended resources in container limits that stand for one whole GPU.
    pub extended_resources: &'static [&'static str],
    /// Name prefixes of extended resources that stand for a part or a share of a GPU.
    pub partial_resources: &'static [&'static str],
    /// How the driver publishes parts of GPUs, for an entry of [`parts`](crate::gpu_drivers::parts).
    pub part: Option<Part>,
}

/// Parts of GPUs, each of which is at the address of its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The attribute with the profile of a part: its size, as a text.
    pub profile_attribute: &'static str,
    /// The prefix of extended resources of which the rest is a profile, if there are any.
    pub profile_resources: Option<&'static str>,
}

/// The driver of no GPU, for pods that ask for NICs only.
pub const NONE: &GpuDriver = &GpuDriver {
    driver: "",
    class: "",
    pci_vendor: 0,
    kind_attribute: None,
    gpu_kind: "",
    uuid_attribute: None,
    address_attribute: None,
    is_named_by_address: false,
    numa_attribute: None,
    extended_resources: &[],
    partial_resources: &[],
    part: None,
};

/// The parts of GPUs of built-in drivers.
pub(crate) const BUILT_IN_PARTS: &[GpuDriver] = &[
    GpuDriver {
        driver: "gpu.nvidia.com",
        class: "mig.nvidia.com",
        pci_vendor: PCI_VENDOR_NVIDIA,
        kind_attribute: Some("gpu.nvidia.com/type"),
        gpu_kind: "mig",
        address_attribute: Some("gpu.nvidia.com/pcieBusID"),
        extended_resources: &["nvidia.com/gpu"],
        part: Some(Part {
            profile_attribute: "gpu.nvidia.com/profile",
            profile_resources: Some("nvidia.com/mig-"),
        }),
        ..*NONE
    },
    GpuDriver {
        driver: "gpu.amd.com",
        class: "gpu.amd.com",
        pci_vendor: PCI_VENDOR_AMD,
        kind_attribute: Some("gpu.amd.com/type"),
        gpu_kind: "amdgpu-partition",
        // ROCm/k8s-gpu-dra-driver, pull request 21 and commit 2622427
        // (`cmd/gpu-kubeletplugin/deviceinfo.go`); its documentation says `pciAddr`, which is read too.
        address_attribute: Some("gpu.amd.com/parentPciAddr"),
        numa_attribute: Some("gpu.amd.com/numaNode"),
        extended_resources: &["amd.com/gpu"],
        part: Some(Part {
            profile_attribute: "gpu.amd.com/partitionProfile",
            profile_resources: None,
        }),
        ..*NONE
    },
];

/// The built-in drivers.
pub(crate) const BUILT_IN: &[GpuDriver] = &[
    GpuDriver {
        driver: "gpu.nvidia.com",
        class: "gpu.nvidia.com",
        pci_vendor: PCI_VENDOR_NVIDIA,
        kind_attribute: Some("gpu.nvidia.com/type"),
        gpu_kind: "gpu",
        uuid_attribute: Some("gpu.nvidia.com/uuid"),
        // Renamed to the standard name in 2026 (dra-driver-nvidia-gpu, pull request 800).
        address_attribute: Some("gpu.nvidia.com/pcieBusID"),
        extended_resources: &["nvidia.com/gpu"],
        // Resource names of MIG and time-sliced devices in NVIDIA's device plugin.
        partial_resources: &["nvidia.com/mig-", "nvidia.com/gpu."],
        ..*NONE
    },
    GpuDriver {
        driver: "gpu.amd.com",
        class: "gpu.amd.com",
        pci_vendor: PCI_VENDOR_AMD,
        kind_attribute: Some("gpu.amd.com/type"),
        gpu_kind: "amdgpu",
        // From before the standard one (commit 2622427, October 2025).
        address_attribute: Some("gpu.amd.com/pciAddr"),
        numa_attribute: Some("gpu.amd.com/numaNode"),
        extended_resources: &["amd.com/gpu"],
        // Resource names of partitions in AMD's device plugin.
        partial_resources: &["amd.com/cpx_", "amd.com/dpx_", "amd.com/qpx_", "amd.com/spx_"],
        ..*NONE
    },
    GpuDriver {
        driver: "gpu.intel.com",
        class: "gpu.intel.com",
        pci_vendor: PCI_VENDOR_INTEL,
        // It publishes `type`, but no value has been seen in a live slice.
        // Of the device plugin, and of the DeviceClass in the driver's chart
        // (intel-resource-drivers-for-kubernetes, charts/intel-gpu-resource-driver/values.yaml).
        extended_resources: &["gpu.intel.com/i915", "gpu.intel.com/xe", "intel.com/gpu"],
        // Resource names of tiles, shares and monitors of GPUs.
        partial_resources: &["gpu.intel.com/"],
        ..*NONE
    },
];
