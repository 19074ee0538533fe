//! Extended resources by which device plugins give NICs to pods.

use crate::gpu_drivers;

/// Prefixes of resources that are always NICs: of k8s-rdma-shared-dev-plugin, of the SR-IOV network device
/// plugin as NVIDIA's network operator configures it, and of the plugins of AWS, Google Cloud and Alibaba
/// Cloud.
const PREFIXES: [&str; 7] = [
    "rdma/",
    "mellanox.com/",
    "nvidia.com/hostdev",
    "nvidia.com/mlnxnics",
    "vpc.amazonaws.com/efa",
    "networking.gke.io.networks/rdma",
    "aliyun/erdma",
];

/// Parts of words by which people name NICs where the plugin's configuration sets the name
/// (`resourceName`): `nvidia.com/sriov_rdma_vf`, `openshift.io/mlnx_roce`.
const PARTS: [&str; 5] = ["rdma", "sriov", "mlnx", "infiniband", "netdevice"];

/// Whole words of such names: `amd.com/vnic`, `nvidia.com/ib_0`.
const WORDS: [&str; 7] = ["hca", "hostdev", "ib", "nic", "nics", "roce", "vnic"];

/// Devices that have virtual functions, too.
const OTHERS: [&str; 4] = ["fpga", "gpu", "nvme", "qat"];

/// Whether a resource is always NICs.
pub fn is_nics(resource: &str) -> bool {
    PREFIXES.iter().any(|prefix| resource.starts_with(prefix)) && !is_accelerator(resource)
}

/// Whether a resource is NICs, or has a name that people give to NICs.
pub fn can_be_nics(resource: &str) -> bool {
    let name = resource.rsplit_once('/').map_or("", |(_, name)| name).to_ascii_lowercase();
    let is_other = OTHERS.iter().any(|other| name.contains(other)) || is_accelerator(resource);
    let has_part = PARTS.iter().any(|part| name.contains(part));
    let mut words = name.split(|letter: char| !letter.is_ascii_alphabetic());
    is_nics(resource) || !is_other && (has_part || words.any(|word| WORDS.contains(&word)))
}

/// Whether a resource is accelerators or parts of them.
fn is_accelerator(resource: &str) -> bool {
    gpu_drivers::all().iter().any(|driver| {
        driver.extended_resources.contains(&resource)
            || driver.partial_resources.iter().any(|prefix| resource.starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of public configurations: of network operators, of the SR-IOV network device plugin, and of
    /// clouds.
    #[test]
    fn names_of_public_configurations() {
        for (resource, are, may_be) in [
            ("rdma/hca_shared_devices_a", true, true),
            ("nvidia.com/hostdev", true, true),
            ("vpc.amazonaws.com/efa", true, true),
            ("networking.gke.io.networks/rdma-0", true, true),
            ("nvidia.com/sriov_rdma_vf", false, true),
            ("openshift.io/mlnxnics", false, true),
            ("openshift.io/mlx5_rdma", false, true),
            ("intel.com/intel_sriov_netdevice", false, true),
            ("amd.com/nic", false, true),
            ("amd.com/vnic", false, true),
            ("nvidia.com/ib-sriov-0", false, true),
            ("nvidia.com/gpu", false, false),
            ("nvidia.com/mig-1g.10gb", false, false),
            ("gpu.intel.com/i915", false, false),
            ("intel.com/fpga_sriov", false, false),
            ("qat.intel.com/generic", false, false),
            ("nvidia.com/roce_gdr", false, true),
            ("example.com/technicians", false, false),
            ("example.com/video-processor", false, false),
            ("hugepages-2Mi", false, false),
            ("cpu", false, false),
        ] {
            assert_eq!((is_nics(resource), can_be_nics(resource)), (are, may_be), "{resource}");
        }
    }
}
