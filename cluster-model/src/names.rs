//! Names that several crates write or read. Each is defined here once.

pub mod annotation;

/// The driver name of this project's ResourceSlices; the same as upstream DRANET's.
pub const DRIVER: &str = "dra.net";

/// The DeviceClass of our NICs; upstream's examples on AKS use the same name.
pub const NIC_CLASS: &str = "dranet.net";

/// Prefix of the names of devices that stand for any free NIC of their node, which is chosen when the
/// pod starts. A number follows.
pub const LATE_PLACE: &str = "late-";

/// The value of [`attribute::PORT_STATE`] for an active port.
pub const PORT_ACTIVE: &str = "Active";

/// The scheduling gate of pods that wait for their group's fabric.
pub const GATE_FABRIC: &str = "dranet.io/fabric";

/// The name of the `PodGroup` that the fabric controller creates for pods with this value of
/// [`label::FABRIC_GROUP`].
pub fn pod_group(group: &str) -> String {
    format!("dranet-{group}")
}

/// The longest DNS subdomain (RFC 1123).
const SUBDOMAIN_MAX: usize = 253;

/// Whether a text is a DNS subdomain, as names of objects and of API groups are.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_MAX
        && text.split('.').all(|label| {
            label.bytes().all(|byte| is_letter(byte) || byte == b'-')
                && label.bytes().next().is_some_and(is_letter)
                && label.bytes().last().is_some_and(is_letter)
        })
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Labels.
pub mod label {
    /// On a pod, and on the `PodGroup` created for it: the group of pods that must be on one
    /// fabric.
    pub const FABRIC_GROUP: &str = "dranet.io/fabric-group";
    /// On a DeviceTaintRule of preemptor: the UID of the first pod that the device is kept for.
    pub const PREEMPTION: &str = "dranet.io/preemption";
    /// On a DeviceTaintRule of `kubectl dranet defrag --apply`: the UID of the pod that has moved.
    pub const DEFRAGMENTATION: &str = "dranet.io/defragmentation";
    /// On a claim that admission wrote, and on its template: the name of the template.
    pub const TEMPLATE: &str = "dranet.io/template";
    /// On a node: the fabric of its NICs.
    pub const NODE_FABRIC: &str = "topology.dranet.io/fabric";
    /// On a node whose fabric label was copied from another source: that source.
    pub const NODE_FABRIC_FROM: &str = "topology.dranet.io/fabric-from";
    /// On a node: the NVLink domain of its GPUs, a level below the fabric.
    pub const NODE_NVLINK: &str = "topology.dranet.io/nvlink-domain";
    /// On a node whose NVLink domain was copied from another label: that label.
    pub const NODE_NVLINK_FROM: &str = "topology.dranet.io/nvlink-domain-from";
    /// On a node: the block of nodes behind one leaf switch, a level below the fabric.
    pub const NODE_BLOCK: &str = "topology.dranet.io/block";
    /// On a node whose block was copied from another label: that label.
    pub const NODE_BLOCK_FROM: &str = "topology.dranet.io/block-from";
    /// On a node: the number of GPUs of its machine.
    pub const GPU_COUNT: &str = "topology.dranet.io/gpu-count";
    /// On a node: the number of compute NICs of its machine.
    pub const NIC_COUNT: &str = "topology.dranet.io/nic-count";
    /// On a node: the type of its machine, or else the hash of its shape.
    pub const MACHINE_TYPE: &str = "topology.dranet.io/machine-type";
    /// On a node: the number of rails of its compute NICs.
    pub const RAIL_COUNT: &str = "topology.dranet.io/rail-count";
    /// On a node: the type of its machine, named by its cloud.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// On a `NicAddress`: the name of its `NicPool`.
    pub const NIC_POOL: &str = "topology.dranet.io/nic-pool";
    /// On a `NicAddress`: the UID of the claim that holds it.
    pub const CLAIM_UID: &str = "topology.dranet.io/claim-uid";
    /// On a node: the NVLink domain of its GPUs, set by NVIDIA's GPU feature discovery.
    pub const NVLINK_CLIQUE: &str = "nvidia.com/gpu.clique";
}

/// Labels and annotations with which job controllers mark their pods.
pub mod job_label {
    /// The JobSet of a Job's pods (`jobset/api/jobset/v1alpha2`).
    pub const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";
    /// The UID of this JobSet.
    pub const JOB_SET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";
    /// The `LeaderWorkerSet` of a pod (`lws/api/leaderworkerset/v1`).
    pub const LEADER_WORKER_SET: &str = "leaderworkerset.sigs.k8s.io/name";
    /// The index of a pod in a group of a `LeaderWorkerSet`.
    pub const LEADER_WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
    /// The index of a pod of an indexed Job.
    pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
    /// The index of a pod of a StatefulSet.
    pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
    /// The labels and annotations with the index of a pod among those of its controller.
    pub const INDICES: [&str; 3] = [LEADER_WORKER_INDEX, COMPLETION_INDEX, POD_INDEX];
    /// The labels that differ between the pods of one controller.
    pub const NUMBERS: [&str; 4] =
        [LEADER_WORKER_INDEX, COMPLETION_INDEX, POD_INDEX, "statefulset.kubernetes.io/pod-name"];
    /// The group of the `LeaderWorkerSet` that a pod belongs to.
    pub const LEADER_WORKER_GROUP: &str = "leaderworkerset.sigs.k8s.io/group-key";
    /// The `PodGroup` of scheduler-plugins.
    pub const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";
    /// The `PodGroup` of Volcano; an annotation.
    pub const VOLCANO_GROUP: &str = "scheduling.k8s.io/group-name";
    /// The job of Kubeflow's operators (`training-operator/pkg/apis`, `mpi-operator`).
    pub const TRAINING_JOB: &str = "training.kubeflow.org/job-name";
    /// Labels and annotations that identify a job with several controllers: the Jobs of a
    /// `JobSet`, each StatefulSet of a `LeaderWorkerSet`, launcher and workers of an `MPIJob`, the
    /// `PodGroup` of scheduler-plugins and of Volcano. The controller of such a pod owns only a part
    /// of the job.
    pub const JOBS: [&str; 5] =
        [JOB_SET, LEADER_WORKER_GROUP, TRAINING_JOB, POD_GROUP, VOLCANO_GROUP];
}

/// The condition of a pod that waits for its group's fabric.
pub const CONDITION_FABRIC: &str = "dranet.io/FabricChosen";

/// The event on pods, and on their job, whose `ComputeDomain` admission cannot create.
pub const EVENT_COMPUTE_DOMAIN: &str = "ComputeDomainNotCreated";

/// The namespace in which `deploy` installs admission.
pub const ADMISSION_NAMESPACE: &str = "dranet-system";

/// Admission's own objects, in its namespace. `deploy` creates them empty.
pub mod object {
    /// The Lease of its leader.
    pub const LEASE: &str = "admission";
    /// The Lease of the fabric controller's leader.
    pub const FABRIC_LEASE: &str = "fabric-controller";
    /// The Lease of the leader of preemptor.
    pub const PREEMPTOR_LEASE: &str = "preemptor";
    /// The Secret with its certificates.
    pub const CERTIFICATES: &str = "admission-certificates";
    /// The ConfigMap with the remembered machines.
    pub const MACHINES: &str = "admission-machines";
    /// The ConfigMap with the drivers of the chart's values.
    pub const DRIVERS: &str = "dranet-drivers";
    /// The key of its content.
    pub const DRIVERS_KEY: &str = "drivers.yaml";
    /// The webhook configuration for pods.
    pub const WEBHOOK: &str = "admission.dranet.io";
    /// The webhook configuration for hand-written claims and templates.
    pub const LINT_WEBHOOK: &str = "lint.dranet.io";
}

/// Alternatives of the requests that admission writes.
pub mod alternative {
    /// Any devices, near or not: the last resort of preferred alignment.
    pub const ANY: &str = "any";
    /// The same in a group that stands for pairs of a GPU and its NICs, for which a claim has no
    /// room. Each pair may be near nevertheless; only the path shows that.
    pub const ANY_PAIRS: &str = "any-pairs";
    /// How the names of alternatives begin that divide the devices of a pod among NUMA nodes, so that
    /// few paths lead between these.
    pub const ACROSS: &str = "across-";

    /// Whether an alternative is one of these.
    pub fn is_last_resort(name: &str) -> bool {
        name == ANY_PAIRS || is_far(name)
    }

    /// Whether some devices of an alternative are certainly not near each other, or need not be.
    pub fn is_far(name: &str) -> bool {
        name == ANY || name.starts_with(ACROSS)
    }
}

/// The taint of NICs with the role `management`, which pods must not have.
pub const MANAGEMENT_TAINT: &str = "dranet.io/management";

/// The taint of devices that preemptor keeps for pods of higher priority.
pub const TAINT_KEPT: &str = "dranet.io/kept-for";

/// The driver of CPUs (kubernetes-sigs/dra-driver-cpu).
pub mod cpu {
    /// The driver name of its ResourceSlices.
    pub const DRIVER: &str = "dra.cpu";
    /// The DeviceClass that its installation creates.
    pub const CLASS: &str = "dra.cpu";
}

/// The driver of NVMe devices (johnahull/dra-driver-nvme).
pub mod nvme {
    /// The driver name of its ResourceSlices.
    pub const DRIVER: &str = "dra.nvme";
    /// The DeviceClass for block devices that its installation creates.
    pub const CLASS: &str = "dra.nvme";
}

/// Device capacities by fully qualified name.
pub mod capacity {
    /// The CPUs of a NUMA node, which claims divide.
    pub const CPU: &str = "dra.cpu/cpu";
    /// The bandwidth of a NIC in bits per second, if claims can share it.
    pub const BANDWIDTH: &str = "dranet.io/bandwidth";
    /// The maximum number of claims that share a NIC, if the operator limits it.
    pub const SHARES: &str = "dranet.io/shares";
}

/// Device attributes by fully qualified name.
pub mod attribute {
    /// PCI address, `0101:00:00.0`. Standard since Kubernetes 1.36.
    pub const PCI_BUS_ID: &str = "resource.kubernetes.io/pciBusID";
    /// The PCIe root, `pci0000:15`. Standard since Kubernetes 1.34.
    pub const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";
    /// The NUMA node as an integer. Standard since Kubernetes 1.37.
    pub const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";
    /// The hash of the node's graph without identities.
    pub const SHAPE: &str = "dranet.io/shape";
    /// The PCIe switch above a NIC, as named in the graph.
    pub const PCIE_SWITCH: &str = "dranet.io/pcieSwitch";
    /// The state of an RDMA port, `Active`.
    pub const PORT_STATE: &str = "dranet.io/portState";
    /// The rate of an RDMA port in whole gigabits per second.
    pub const RATE_GBPS: &str = "dranet.io/rateGbps";
    /// What a NIC is for: `compute`, `storage`, `management`. Upstream DRANET does not publish it.
    pub const ROLE: &str = "dranet.io/role";
    /// The link type of a NIC: `infiniband`, `ethernet`.
    pub const LINK_TYPE: &str = "dranet.io/linkType";
    /// The index of a compute NIC among those of its link type.
    pub const RAIL: &str = "dranet.io/rail";
    /// The PCI address of the function that has a NIC's port: of its physical function, or its own. Only
    /// on NICs without a rail.
    pub const PORT: &str = "dranet.io/port";
    /// The network within which NICs reach each other.
    pub const FABRIC: &str = "dranet.io/fabric";
    /// Whether the device stands for any free NIC of its node, which is chosen when the pod starts.
    pub const LATE_BINDING: &str = "dranet.io/lateBinding";
    /// The number of such a device on a node with many of them.
    pub const PLACE: &str = "dranet.io/place";
    /// Whether a PCIe link runs below the capability of the function.
    pub const DEGRADED: &str = "dranet.io/degraded";
    /// Azure placement group of the virtual machine.
    pub const AZURE_PLACEMENT_GROUP: &str = "azure.dra.net/placementGroupId";
    /// Azure size of the virtual machine.
    pub const AZURE_VM_SIZE: &str = "azure.dra.net/vmSize";

    /// The Azure group of machines that reach each other by InfiniBand.
    pub const AZURE_INTERCONNECT_GROUP: &str = "azure.dra.net/interconnectGroupId";
    /// The Azure group of machines connected by NVLink switches.
    pub const AZURE_INTERCONNECT_SUBGROUP: &str = "azure.dra.net/interconnectSubgroupId";

    /// Type of an AWS instance.
    pub const AWS_INSTANCE_TYPE: &str = "aws.dra.net/instanceType";
    /// Cluster placement group of an AWS instance.
    pub const AWS_PLACEMENT_GROUP: &str = "aws.dra.net/placementGroup";
    /// Type of a Google Cloud machine.
    pub const GCE_MACHINE_TYPE: &str = "gce.dra.net/machineType";
    /// The group of racks of a Google Cloud machine.
    pub const GCE_BLOCK: &str = "gce.dra.net/block";
    /// The rack of a Google Cloud machine.
    pub const GCE_SUB_BLOCK: &str = "gce.dra.net/subBlock";
    /// The physical host of a Google Cloud machine.
    pub const GCE_HOST: &str = "gce.dra.net/host";
    /// Group of network blocks of an Oracle Cloud host.
    pub const OKE_HPC_ISLAND: &str = "oke.dra.net/hpcIslandId";
    /// Group of local blocks of an Oracle Cloud host.
    pub const OKE_NETWORK_BLOCK: &str = "oke.dra.net/networkBlockId";
    /// The hosts below one switch of an Oracle Cloud host.
    pub const OKE_LOCAL_BLOCK: &str = "oke.dra.net/localBlockId";
    /// Rack of an Oracle Cloud host.
    pub const OKE_RACK: &str = "oke.dra.net/rackId";
    /// The Oracle Cloud hosts connected by NVLink switches.
    pub const OKE_GPU_MEMORY_FABRIC: &str = "oke.dra.net/gpuMemoryFabricId";
    /// Type of an Alibaba Cloud instance.
    pub const ALIBABA_INSTANCE_TYPE: &str = "alibaba.dra.net/instanceType";

    /// Attributes with the type of a machine, which determines its graph.
    pub const MACHINE_TYPES: [&str; 4] =
        [AZURE_VM_SIZE, AWS_INSTANCE_TYPE, GCE_MACHINE_TYPE, ALIBABA_INSTANCE_TYPE];

    /// Attributes of upstream DRANET, `dra.net/…`.
    pub mod dranet {
        /// Alias of the interface.
        pub const ALIAS: &str = "dra.net/alias";
        /// The link type of an interface, `ether`.
        pub const ENCAPSULATION: &str = "dra.net/encapsulation";
        /// Whether the device has an RDMA device and no interface.
        pub const IB_ONLY: &str = "dra.net/ibOnly";
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
        /// The NUMA node as an integer.
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

/// Splits a fully qualified name `domain/id` into its two parts; `None` if there is no domain.
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once('/')
}
