//! Names that more than one part writes or reads. Each is spelled here once.

/// Driver name of this project's ResourceSlices, upstream's own.
pub const DRIVER: &str = "dra.net";

/// DeviceClass of our NICs, as upstream's examples on AKS name it.
pub const NIC_CLASS: &str = "dranet.net";

/// Value of [`attribute::PORT_STATE`] for a port that carries data.
pub const PORT_ACTIVE: &str = "Active";

/// Scheduling gate of pods that wait for the fabric of their group.
pub const GATE_FABRIC: &str = "dranet.io/fabric";

/// Name of the `PodGroup` that the fabric controller makes for the pods with this value of
/// [`label::FABRIC_GROUP`].
pub fn pod_group(group: &str) -> String {
    format!("dranet-{group}")
}

/// Labels.
pub mod label {
    /// On a pod, and on the `PodGroup` that is made for it: the group whose pods belong on one
    /// fabric.
    pub const FABRIC_GROUP: &str = "dranet.io/fabric-group";
    /// On a claim that admission wrote, and on its template: name of the template.
    pub const TEMPLATE: &str = "dranet.io/template";
    /// On a node: the fabric that its NICs are on.
    pub const NODE_FABRIC: &str = "topology.dranet.io/fabric";
    /// On a node whose label of its fabric was copied: from what.
    pub const NODE_FABRIC_FROM: &str = "topology.dranet.io/fabric-from";
    /// On a node: how many GPUs its machine has.
    pub const GPU_COUNT: &str = "topology.dranet.io/gpu-count";
    /// On a node: how many NICs its machine has.
    pub const NIC_COUNT: &str = "topology.dranet.io/nic-count";
    /// On a node: the type of its machine, else the hash of its shape.
    pub const MACHINE_TYPE: &str = "topology.dranet.io/machine-type";
    /// On a node: how many rails its NICs are on.
    pub const RAIL_COUNT: &str = "topology.dranet.io/rail-count";
    /// On a node: the type of its machine, as its cloud names it.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// On a `NicAddress`: name of its `NicPool`.
    pub const NIC_POOL: &str = "topology.dranet.io/nic-pool";
    /// On a `NicAddress`: UID of the claim that has it.
    pub const CLAIM_UID: &str = "topology.dranet.io/claim-uid";
    /// On a node: the NVLink domain of its GPUs, set by NVIDIA's GPU feature discovery.
    pub const NVLINK_CLIQUE: &str = "nvidia.com/gpu.clique";
}

/// Labels and annotations by which controllers of jobs mark their pods.
pub mod job_label {
    /// The JobSet that a Job's pods belong to (`jobset/api/jobset/v1alpha2`).
    pub const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";
    /// The `LeaderWorkerSet` of a pod (`lws/api/leaderworkerset/v1`).
    pub const LEADER_WORKER_SET: &str = "leaderworkerset.sigs.k8s.io/name";
    /// The one of its groups that a pod is in.
    pub const LEADER_WORKER_GROUP: &str = "leaderworkerset.sigs.k8s.io/group-key";
    /// The `PodGroup` of scheduler-plugins.
    pub const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";
    /// The `PodGroup` of Volcano, an annotation.
    pub const VOLCANO_GROUP: &str = "scheduling.k8s.io/group-name";
    /// The job of Kubeflow's operators (`training-operator/pkg/apis`, `mpi-operator`).
    pub const TRAINING_JOB: &str = "training.kubeflow.org/job-name";
}

/// Condition of a pod that waits for the fabric of its group.
pub const CONDITION_FABRIC: &str = "dranet.io/FabricChosen";

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
    /// How near: `switch`, `root-port`, `root`, `numa`.
    pub const ALIGNMENT: &str = "dranet.io/alignment";
    /// How binding: `required`, `preferred`.
    pub const ALIGNMENT_POLICY: &str = "dranet.io/alignment-policy";
    /// `each` GPU its own NICs, or all together as a `group`.
    pub const PAIRING: &str = "dranet.io/pairing";
    /// One InfiniBand fabric for all pods of a job.
    pub const FABRIC: &str = "dranet.io/fabric";
    /// How many pods the group on one fabric has.
    pub const FABRIC_SIZE: &str = "dranet.io/fabric-size";
    /// Written by the fabric controller on a gated pod: the fabric of its group.
    pub const FABRIC_CHOSEN: &str = "dranet.io/fabric-chosen";
    /// Written by the fabric controller on the pods of a job that moves to another
    /// fabric: none of them stays.
    pub const FABRIC_MOVES: &str = "dranet.io/fabric-moves";
    /// Names of the containers that get the claim.
    pub const CONTAINERS: &str = "dranet.io/containers";
    /// The driver's network configuration as JSON.
    pub const NIC_CONFIG: &str = "dranet.io/nic-config";
    /// The `NicPool` that the NICs' interfaces get their addresses from.
    pub const NIC_POOL: &str = "dranet.io/nic-pool";
    /// Whether the NICs are the pod's alone or shared with other pods: `exclusive`, `shared`.
    pub const NIC_SHARING: &str = "dranet.io/nic-sharing";
    /// What the pod gets of the bandwidth of each NIC that it shares.
    pub const NIC_BANDWIDTH: &str = "dranet.io/nic-bandwidth";
    /// Written by the webhook: the limits that the claim stands for, by container.
    pub const LIMITS: &str = "dranet.io/limits";
    /// Written on a template whose claim is pinned to cells: which.
    pub const PINNED: &str = "dranet.io/pinned";
    /// Same rail for all pods of a job.
    pub const RAIL: &str = "dranet.io/rail";
    /// CPUs on the NUMA node of the GPUs and NICs.
    pub const ALIGNED_CPUS: &str = "dranet.io/aligned-cpus";
    /// NVMe devices on the NUMA node of the GPUs and NICs.
    pub const ALIGNED_NVMES: &str = "dranet.io/aligned-nvmes";
    /// Written on a template that nobody refers to: since when.
    pub const UNUSED_SINCE: &str = "dranet.io/unused-since";
    /// Written by the webhook: a hash of the annotations that the claim was planned from, by
    /// which a copy with other annotations is known.
    pub const REQUEST_HASH: &str = "dranet.io/request-hash";
    /// Written by the webhook: what was decided and why, in one line.
    pub const PLAN: &str = "dranet.io/plan";
}

/// Namespace in which admission is installed by `deploy`.
pub const ADMISSION_NAMESPACE: &str = "dranet-system";

/// Objects of admission's own, in its namespace; `deploy` holds them, empty.
pub mod object {
    /// The Lease of its leader.
    pub const LEASE: &str = "admission";
    /// The Lease of the fabric controller's leader.
    pub const FABRIC_LEASE: &str = "fabric-controller";
    /// The Secret with its certificates.
    pub const CERTIFICATES: &str = "admission-certificates";
    /// The ConfigMap with the machines that were seen once.
    pub const MACHINES: &str = "admission-machines";
    /// The webhook configuration for pods.
    pub const WEBHOOK: &str = "admission.dranet.io";
    /// The webhook configuration for hand-written claims and templates.
    pub const LINT_WEBHOOK: &str = "lint.dranet.io";
}

/// Alternatives of the requests that admission writes.
pub mod alternative {
    /// Any devices, near or not: the last resort of preferred alignment.
    pub const ANY: &str = "any";
}

/// The driver of CPUs (kubernetes-sigs/dra-driver-cpu).
pub mod cpu {
    /// Driver name of its ResourceSlices.
    pub const DRIVER: &str = "dra.cpu";
    /// The DeviceClass that its installation has.
    pub const CLASS: &str = "dra.cpu";
}

/// The driver of NVMe devices (johnahull/dra-driver-nvme).
pub mod nvme {
    /// Driver name of its ResourceSlices.
    pub const DRIVER: &str = "dra.nvme";
    /// The DeviceClass of block devices that its installation has.
    pub const CLASS: &str = "dra.nvme";
}

/// Device capacities by fully qualified name.
pub mod capacity {
    /// CPUs of a NUMA node, of which claims take parts.
    pub const CPU: &str = "dra.cpu/cpu";
    /// What a NIC carries in bits per second, where claims can share it.
    pub const BANDWIDTH: &str = "dranet.io/bandwidth";
    /// How many claims can have a NIC together, where the operator limits that.
    pub const SHARES: &str = "dranet.io/shares";
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
    /// The `PCIe` switch that a NIC hangs off, as the graph names it.
    pub const PCIE_SWITCH: &str = "dranet.io/pcieSwitch";
    /// State of an RDMA port, `Active`.
    pub const PORT_STATE: &str = "dranet.io/portState";
    /// Rate of an RDMA port in whole gigabits per second.
    pub const RATE_GBPS: &str = "dranet.io/rateGbps";
    /// Number of a NIC among those of its type on the node.
    pub const RAIL: &str = "dranet.io/rail";
    /// The network within which NICs reach each other.
    pub const FABRIC: &str = "dranet.io/fabric";
    /// Whether a `PCIe` link runs below what the function could.
    pub const DEGRADED: &str = "dranet.io/degraded";
    /// Azure placement group of the virtual machine.
    pub const AZURE_PLACEMENT_GROUP: &str = "azure.dra.net/placementGroupId";
    /// Azure size of the virtual machine.
    pub const AZURE_VM_SIZE: &str = "azure.dra.net/vmSize";

    /// Azure group of machines that reach each other by InfiniBand.
    pub const AZURE_INTERCONNECT_GROUP: &str = "azure.dra.net/interconnectGroupId";
    /// Azure group of machines joined by NVLink switches.
    pub const AZURE_INTERCONNECT_SUBGROUP: &str = "azure.dra.net/interconnectSubgroupId";

    /// Type of an AWS instance.
    pub const AWS_INSTANCE_TYPE: &str = "aws.dra.net/instanceType";
    /// Cluster placement group of an AWS instance.
    pub const AWS_PLACEMENT_GROUP: &str = "aws.dra.net/placementGroup";
    /// Type of a Google Cloud machine.
    pub const GCE_MACHINE_TYPE: &str = "gce.dra.net/machineType";
    /// Group of racks that a Google Cloud machine is in.
    pub const GCE_BLOCK: &str = "gce.dra.net/block";
    /// Rack that a Google Cloud machine is in.
    pub const GCE_SUB_BLOCK: &str = "gce.dra.net/subBlock";
    /// Physical host of a Google Cloud machine.
    pub const GCE_HOST: &str = "gce.dra.net/host";
    /// Group of network blocks of an Oracle Cloud host.
    pub const OKE_HPC_ISLAND: &str = "oke.dra.net/hpcIslandId";
    /// Group of local blocks of an Oracle Cloud host.
    pub const OKE_NETWORK_BLOCK: &str = "oke.dra.net/networkBlockId";
    /// Hosts below one switch of an Oracle Cloud host.
    pub const OKE_LOCAL_BLOCK: &str = "oke.dra.net/localBlockId";
    /// Rack of an Oracle Cloud host.
    pub const OKE_RACK: &str = "oke.dra.net/rackId";
    /// Oracle Cloud hosts joined by NVLink switches.
    pub const OKE_GPU_MEMORY_FABRIC: &str = "oke.dra.net/gpuMemoryFabricId";
    /// Type of an Alibaba Cloud instance.
    pub const ALIBABA_INSTANCE_TYPE: &str = "alibaba.dra.net/instanceType";

    /// Attributes that name the type of a machine, which says what its graph is.
    pub const MACHINE_TYPES: [&str; 4] =
        [AZURE_VM_SIZE, AWS_INSTANCE_TYPE, GCE_MACHINE_TYPE, ALIBABA_INSTANCE_TYPE];

    /// Upstream DRANET's own, `dra.net/…`.
    pub mod dranet {
        /// Alias of the interface.
        pub const ALIAS: &str = "dra.net/alias";
        /// What an interface's frames are, `ether`.
        pub const ENCAPSULATION: &str = "dra.net/encapsulation";
        /// Name of the interface.
        pub const IF_NAME: &str = "dra.net/ifName";
        /// IPv4 addresses.
        pub const IPV4: &str = "dra.net/ipv4";
        /// IPv6 addresses.
        pub const IPV6: &str = "dra.net/ipv6";
        /// Whether the device is a virtual function.
        pub const IS_SRIOV_VF: &str = "dra.net/isSriovVf";
        /// Hardware address.
        pub const MAC: &str = "dra.net/mac";
        /// MTU of the interface.
        pub const MTU: &str = "dra.net/mtu";
        /// NUMA node as an int.
        pub const NUMA_NODE: &str = "dra.net/numaNode";
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
        /// Whether the device can have virtual functions.
        pub const SRIOV: &str = "dra.net/sriov";
        /// How many virtual functions the device has.
        pub const SRIOV_VFS: &str = "dra.net/sriovVfs";
        /// Operational state of the interface, `up`.
        pub const STATE: &str = "dra.net/state";
        /// Kind of the interface, `device`, `veth`.
        pub const TYPE: &str = "dra.net/type";
        /// Whether the interface has no device.
        pub const VIRTUAL: &str = "dra.net/virtual";
    }
}

/// Split a fully qualified name `domain/id` into its two halves.
///
/// Returns `None` where there is no domain.
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once('/')
}
