//! The flags of the kubelet plugin.

use crate::kernel::attach::{AttachMode, SYSCTL};
use crate::prepare::cdi::NcclTopoFile;
use crate::prepare::effects::Faults;
use crate::prepare::plan::Policy;
use cluster_model::counted::Counted;
use node_files::paths::Paths;
use std::path::PathBuf;

/// Where the kubelet and the container runtime are.
#[derive(clap::Args, Clone, Debug)]
#[expect(clippy::doc_markdown, reason = "backticks would appear in the help")]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub struct PluginArgs {
    /// Kubelet's root directory, /var/lib/kubelet on most nodes; without it the driver publishes
    /// devices and prepares no claims
    #[arg(long, value_name = "DIR")]
    pub kubelet_dir: Option<PathBuf>,
    /// Directory in which the container runtime looks for CDI specs
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi_dir: PathBuf,
    /// How interfaces are moved into pods: by a hook that the container runtime runs, or by this
    /// driver as an NRI plugin
    #[arg(long, value_enum, default_value_t = AttachMode::Hook)]
    pub attach: AttachMode,
    /// Socket of the container runtime's NRI, with --attach=nri
    #[arg(long, value_name = "FILE", default_value = "/var/run/nri/nri.sock")]
    pub nri_socket: PathBuf,
    /// Directory for state that lasts until the next boot
    #[arg(long, value_name = "DIR", default_value = "/run/dranet")]
    pub run_dir: PathBuf,
    /// Directory of the host's named network namespaces
    #[arg(long, value_name = "DIR", default_value = "/run/netns")]
    pub netns_dir: PathBuf,
    /// Directory with the host's /proc/sys/net, writable; in a container, where it is mounted
    #[arg(long, value_name = "DIR", default_value = SYSCTL)]
    pub sysctl_dir: PathBuf,
    /// Directory in which the container runtime finds the host's dev
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub runtime_root: PathBuf,
    /// UID of this pod, which distinguishes its sockets from those of the instance that it replaces
    #[arg(long, value_name = "UID", env = "POD_UID")]
    pub instance: Option<String>,
    /// Set NCCL_IB_HCA in containers to their RDMA devices, and NCCL_IB_TC and others to connection
    /// parameters
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub nccl_ib_hca: bool,
    /// Set UCX_NET_DEVICES in containers to their RDMA devices, and UCX_IB_SL and others to
    /// connection parameters
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub ucx_net_devices: bool,
    /// Set VLLM_GPU_NIC_PCIE_MAPPING in containers to the NIC of each GPU, and
    /// VLLM_NIC_SELECTION_VARS to UCX_NET_DEVICES
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub vllm_nic_mapping: bool,
    /// Set NVSHMEM_HCA_PE_MAPPING in containers to the RDMA device of each GPU, and
    /// NVSHMEM_ENABLE_NIC_PE_MAPPING
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub nvshmem_nic_mapping: bool,
    /// Set NCCL_TOPO_FILE in containers to a file with the paths between their devices: auto (if the file has
    /// more than NCCL and RCCL find by themselves), true or false
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub container_nccl_topo_file: NcclTopoFile,
    /// Write /etc/dranet/devices.json in containers: their devices, and which NIC belongs to which
    /// GPU
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub devices_file: bool,
    /// Write the attributes of containers' devices to metadata files (KEP-5304)
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub device_metadata: bool,
    /// Let containers with RDMA devices lock all of their memory (RLIMIT_MEMLOCK), which RDMA needs,
    /// also if they do not run as root
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub locked_memory: bool,
    /// Namespace whose claims may set addresses, routes, rules, neighbors, forwarding, routing
    /// domains and eBPF programs, or `*` for all; NAMESPACE=FIELD,FIELD allows only these fields; may
    /// be repeated
    #[arg(long = "network-namespace", value_name = "NAMESPACE", value_parser = cluster_model::network_config::permission)]
    pub network_namespaces: Vec<String>,
    /// Extended resource of which the node has as many as GPUs, so that quotas count those of claims; for
    /// the DeviceClass of a driver's whole GPUs, as admission has it; may be repeated
    #[arg(long, value_name = "CLASS=RESOURCE")]
    pub counted: Vec<Counted>,
    /// What else pods may get
    #[command(flatten)]
    pub policy: Policy,
    /// Kill the driver at this point of its work, for tests of restarts
    #[cfg(feature = "faults")]
    #[arg(long, value_name = "POINT")]
    pub kill_at: Option<String>,
}

impl PluginArgs {
    /// The paths; `None` if the driver prepares no claims.
    pub fn paths(&self, driver: &str) -> Option<Paths> {
        Some(Paths {
            kubelet: self.kubelet_dir.clone()?,
            driver: driver.to_owned(),
            cdi: self.cdi_dir.clone(),
            run: self.run_dir.clone(),
            netns: self.netns_dir.clone(),
            sysctl: self.sysctl_dir.clone(),
        })
    }

    /// Where a test ends the process.
    pub fn faults(&self) -> Faults {
        #[cfg(feature = "faults")]
        let faults = Faults::kill_at(self.kill_at.clone());
        #[cfg(not(feature = "faults"))]
        let faults = Faults::default();
        faults
    }

    /// The NRI socket; `None` if interfaces are not attached by NRI.
    pub fn nri(&self) -> Option<PathBuf> {
        (self.attach == AttachMode::Nri).then(|| self.nri_socket.clone())
    }
}
