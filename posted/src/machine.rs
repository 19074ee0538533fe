//! What the listings of all programs are read into.

use std::collections::BTreeMap;

use topology_graph::{PciAddress, PciFunction, PcieRoot, SNAPSHOT_VERSION, Snapshot};

/// A text is not a listing of a machine.
#[derive(Debug, thiserror::Error)]
pub enum PostedError {
    /// The text is not XML.
    #[error("failed to read the listing as XML of hwloc")]
    Xml(#[source] roxmltree::Error),
    /// A line of a tree does not fit the lines above it.
    #[error(
        "line {line}: the columns of `{text}` do not fit those of the lines above; post the tree as \
         `lspci -tv` writes it, with all spaces and one line for each device"
    )]
    Tree {
        /// The line number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A line of a description is not as `lspci` writes it.
    #[error(
        "line {line}: `{text}` is no line of `lspci -vvv`, or a part of one; post its output as it is, with \
         all lines whole and a blank line before other text"
    )]
    Details {
        /// The line number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// The paths of a listing have no buses.
    #[error(
        "line {line}: the path in `{text}` has no buses below the first; post `lspci -PP` instead of \
         `lspci -P`"
    )]
    NoBuses {
        /// The line number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// An object of hwloc has a value that hwloc does not write.
    #[error(
        "line {line}: found {attribute}=`{value}`; post the XML as `lstopo --of xml` writes it"
    )]
    Attribute {
        /// The line number, from 1.
        line: u32,
        /// The name of the attribute, or of the matrix.
        attribute: String,
        /// Its value.
        value: String,
    },
    /// A tree ends before all of its branches do.
    #[error(
        "line {line}: the tree ends with `{text}`, but has open branches; post all of `lspci -tv`"
    )]
    CutTree {
        /// The line number, from 1.
        line: usize,
        /// The last line.
        text: String,
    },
    /// A function is in two places.
    #[error("found {0} in two places; post the listing of one machine")]
    Twice(PciAddress),
    /// A tree has only addresses.
    #[error(
        "found a tree without names, which does not show GPUs and NICs; post `lspci -tv`, or add the \
         output of `lspci -nn`"
    )]
    NoNames,
    /// The text is drawn by hwloc for people.
    #[error(
        "found the console text of lstopo, which has no complete addresses; post `lstopo --of xml`"
    )]
    Lstopo,
    /// There is no PCI function in it.
    #[error(
        "found no PCI function; a listing is the output of `lspci -tv`, of `lspci -vvv` (also both, one \
         after the other), or XML of hwloc (`lstopo --of xml`)"
    )]
    NoFunction,
}

/// Functions by address.
pub(crate) type Functions = BTreeMap<PciAddress, PciFunction>;

/// A function below these bridges, with nothing else known.
pub(crate) fn function(
    address: PciAddress,
    root: Option<PcieRoot>,
    bridges: &[PciAddress],
) -> PciFunction {
    let above = bridges.iter().map(|bridge| format!("{bridge}/"));
    let root_path = root.map(|root| format!("{root}/")).unwrap_or_default();
    PciFunction {
        address,
        path: format!("devices/{root_path}{}{address}", above.collect::<String>()),
        root,
        bridges: bridges.to_vec(),
        class: 0,
        vendor: 0,
        device: 0,
        subsystem_vendor: None,
        subsystem_device: None,
        driver: None,
        numa_node: None,
        local_cpus: None,
        physical_function: None,
        sriov_total_vfs: None,
        sriov_num_vfs: None,
        iommu_group: None,
        iommu_mode: None,
        acs: None,
        ats_enabled: None,
        vpd_v3: None,
        manages_switches: false,
        current_link: None,
        max_link: None,
    }
}

/// A vendor and a device ID, `10de:2330`.
pub(crate) fn device_id(text: &str) -> Option<(u16, u16)> {
    let (vendor, device) = text.split_once(':')?;
    Some((u16::from_str_radix(vendor, 16).ok()?, u16::from_str_radix(device, 16).ok()?))
}

/// A machine without facts.
pub(crate) fn nothing() -> Snapshot {
    Snapshot {
        version: SNAPSHOT_VERSION,
        pci: Vec::new(),
        numa_nodes: Vec::new(),
        sockets: Vec::new(),
        gpus: Vec::new(),
        xgmi: Vec::new(),
        nvlinks: Vec::new(),
        nvidia_peer_memory: None,
        rdma: Vec::new(),
        netdevs: Vec::new(),
        nvme: Vec::new(),
        nccl_file: None,
        anomalies: Vec::new(),
    }
}
