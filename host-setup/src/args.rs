//! The flags.

use crate::vendor_driver::verdict::Drain;
use crate::virtual_functions::policy::SriovPolicy;
use cluster_model::node_labels::NodeLabels;
use std::path::PathBuf;
use std::str::FromStr;

/// How the host is prepared.
#[derive(clap::Args, Clone, Debug)]
pub struct SetupArgs {
    /// Number of virtual functions for selected physical functions: comma-separated numVfs=NUMBER
    /// with at least one of vendor=ID, deviceID=ID, pfName=NAME (`*` for any text) and
    /// rootDevice=ADDRESS, which must all match; repeatable, the first policy that selects a
    /// physical function applies. If the number differs, virtual functions are removed and
    /// recreated once none is in use. Physical functions that carry the node's own traffic need
    /// allowUplink=true
    #[arg(long = "virtual-functions", value_name = "POLICY", requires = "kubelet_dir")]
    pub virtual_functions: Vec<SriovPolicy>,
    /// Writable directory of the kernel's devices and drivers, for --virtual-functions: in a
    /// container, the directory that has the host's /sys/devices mounted as `devices`; defaults to
    /// sys below --root
    #[arg(long, value_name = "DIR")]
    pub sysfs_dir: Option<PathBuf>,
    /// A vendor's NIC driver in a container
    #[command(flatten)]
    pub vendor_driver: VendorDriverArgs,
}

/// Nodes whose NIC driver comes in a container.
#[derive(clap::Args, Clone, Debug)]
pub struct VendorDriverArgs {
    /// Labels of nodes on which a container loads the NICs' driver, as comma-separated KEY=VALUE
    /// that all must be there; repeatable, one of them selects a node. Its NICs are published when
    /// that driver is loaded
    #[arg(long = "vendor-driver-nodes", value_name = "LABELS", requires = "kubelet_dir")]
    pub nodes: Vec<NodeLabels>,
    /// PCI vendor ID of its NICs
    #[arg(long = "vendor-driver-pci-vendor", value_name = "ID", default_value = "15b3")]
    pub pci_vendor: PciVendor,
    /// What happens to pods that use a NIC when its driver is replaced: they are evicted, on one node at
    /// a time, or the new driver waits until they have ended
    #[arg(long = "vendor-driver-drain", value_name = "MODE", value_enum, default_value_t = Drain::Evict)]
    pub drain: Drain,
}

/// A PCI vendor ID, four hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciVendor(pub u16);

impl FromStr for PciVendor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = u16::from_str_radix(text, 16).ok().filter(|_| text.len() == 4);
        id.map(Self).ok_or_else(|| "must be four hexadecimal digits, for example 15b3".to_owned())
    }
}
