//! Names that more than one part writes or reads. Each is spelled here once.

/// Driver name of this project's ResourceSlices, upstream's own.
pub const DRIVER: &str = "dra.net";

/// DeviceClass of our NICs, as upstream's examples on AKS name it.
pub const NIC_CLASS: &str = "dranet.net";

/// Pod annotations, `dranet.io/…`.
pub mod annotation {
    /// What every annotation of ours begins with.
    pub const DOMAIN: &str = "dranet.io/";
    /// NICs for the pod, aligned with its GPUs. The trigger.
    pub const ALIGNED_NICS: &str = "dranet.io/aligned-nics";
    /// GPUs for the pod, where no container's limits name them.
    pub const GPUS: &str = "dranet.io/gpus";
    /// DeviceClass of the GPUs.
    pub const GPU_CLASS: &str = "dranet.io/gpu-class";
    /// DeviceClass of the NICs.
    pub const NIC_CLASS: &str = "dranet.io/nic-class";
    /// How near: `switch`, `root`, `numa`.
    pub const ALIGNMENT: &str = "dranet.io/alignment";
    /// How binding: `required`, `preferred`.
    pub const ALIGNMENT_POLICY: &str = "dranet.io/alignment-policy";
    /// `each` GPU its own NICs, or all together as a `group`.
    pub const PAIRING: &str = "dranet.io/pairing";
    /// One InfiniBand fabric for all pods of a job.
    pub const FABRIC: &str = "dranet.io/fabric";
    /// How many pods the group on one fabric has.
    pub const FABRIC_SIZE: &str = "dranet.io/fabric-size";
    /// Names of the containers that get the claim.
    pub const CONTAINERS: &str = "dranet.io/containers";
    /// The driver's network configuration as JSON.
    pub const NIC_CONFIG: &str = "dranet.io/nic-config";
    /// Written by the webhook: what was decided and why, in one line.
    pub const PLAN: &str = "dranet.io/plan";
}

/// Device attributes by fully qualified name.
pub mod attribute {
    /// PCI address, `0101:00:00.0`. Standard since Kubernetes 1.36.
    pub const PCI_BUS_ID: &str = "resource.kubernetes.io/pciBusID";
    /// Host bridge, `pci0000:15`. Standard since Kubernetes 1.34.
    pub const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";
    /// NUMA node as an int. Standard since Kubernetes 1.37.
    pub const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";
    /// Hash of the node's graph without identities.
    pub const SHAPE: &str = "dranet.io/shape";
    /// Whether the NIC's port is up but worse than it should be.
    pub const DEGRADED: &str = "dranet.io/degraded";
    /// Azure placement group of the virtual machine.
    pub const AZURE_PLACEMENT_GROUP: &str = "azure.dra.net/placementGroupId";
    /// Azure size of the virtual machine.
    pub const AZURE_VM_SIZE: &str = "azure.dra.net/vmSize";

    /// Azure group of machines that reach each other by InfiniBand.
    pub const AZURE_INTERCONNECT_GROUP: &str = "azure.dra.net/interconnectGroupId";
    /// Azure group of machines joined by NVLink switches.
    pub const AZURE_INTERCONNECT_SUBGROUP: &str = "azure.dra.net/interconnectSubgroupId";

    /// Upstream DRANET's own, `dra.net/…`.
    pub mod dranet {
        /// NUMA node as an int.
        pub const NUMA_NODE: &str = "dra.net/numaNode";
        /// Name of the network interface, where there is one on the host.
        pub const IF_NAME: &str = "dra.net/ifName";
        /// PCI address.
        pub const PCI_ADDRESS: &str = "dra.net/pciAddress";
        /// Device name of the PCI ID database.
        pub const PCI_DEVICE: &str = "dra.net/pciDevice";
        /// Subsystem device id, four hex digits.
        pub const PCI_SUBSYSTEM: &str = "dra.net/pciSubsystem";
        /// Vendor name of the PCI ID database.
        pub const PCI_VENDOR: &str = "dra.net/pciVendor";
        /// Whether the device has an RDMA device.
        pub const RDMA: &str = "dra.net/rdma";
        /// Kernel name of the RDMA device, `mlx5_0`.
        pub const RDMA_DEVICE: &str = "dra.net/rdmaDevice";
    }
}

/// Split a fully qualified name `domain/id` into its two halves.
///
/// Returns `None` where there is no domain.
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once('/')
}
