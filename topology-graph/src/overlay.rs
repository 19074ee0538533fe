//! Overlays: facts about a machine that its sysfs does not show, such as switches that a hypervisor
//! hides, NUMA nodes and NVLinks.
//!
//! An overlay names devices by bus ID; building the graph merges it with the facts. The caller asks
//! the cloud for the name of the machine.

mod built_in;

use std::collections::{BTreeMap, BTreeSet};

use crate::class::is_gpu;
use crate::nccl::NcclXml;
use crate::{CpuSet, Evidence, NumaNode, PciAddress, PcieLink};

/// A description that supplements a machine's own facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    pub(crate) evidence: Evidence,
    pub(crate) switches: BTreeMap<PciAddress, OverlaySwitch>,
    pub(crate) devices: BTreeMap<PciAddress, OverlayDevice>,
    /// The CPUs of NUMA nodes, if known.
    pub(crate) cpus: BTreeMap<NumaNode, CpuSet>,
    /// NVLinks between two GPUs, the lower address first.
    pub(crate) nvlinks: BTreeMap<(PciAddress, PciAddress), u32>,
    /// GPUs with XGMI between them, the lower address first.
    pub(crate) xgmi: BTreeSet<(PciAddress, PciAddress)>,
}

/// A whole switch. Its bus ID is invented if a hypervisor hides the real one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlaySwitch {
    /// The switch above.
    pub(crate) parent: Option<PciAddress>,
    /// Its link to its parent, if known.
    pub(crate) link: Option<PcieLink>,
    /// The vendor and device ID, if known.
    pub(crate) id: Option<(u16, u16)>,
}

/// A GPU or NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlayDevice {
    pub(crate) switch: Option<PciAddress>,
    pub(crate) numa: Option<NumaNode>,
    /// The PCI class, if known.
    pub(crate) class: Option<u32>,
    /// The vendor and device ID, if known.
    pub(crate) id: Option<(u16, u16)>,
    /// Its link, if known.
    pub(crate) link: Option<PcieLink>,
    /// The names of its network devices, as NCCL lists them: those of RDMA devices or interfaces.
    pub(crate) names: Vec<String>,
}

impl Overlay {
    /// The description of a cloud's VM size, if this crate has one. Case does not matter, since
    /// clouds spell names in several ways.
    pub fn built_in(vm_size: &str) -> Option<Self> {
        built_in::overlay(vm_size)
    }

    /// The facts of an NCCL topology file, interpreted as NCCL does.
    pub fn from_nccl_xml(xml: &NcclXml) -> Self {
        xml.overlay(Evidence::NcclXml)
    }

    /// The source of its facts.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The facts about a function: its own, or those of another function of the same device. NCCL
    /// too merges the functions of a device.
    pub(crate) fn device(&self, address: PciAddress) -> Option<&OverlayDevice> {
        let first = address.slot();
        let functions = self.devices.range(first..).take_while(|(other, _)| other.slot() == first);
        self.devices.get(&address).or_else(|| functions.map(|(_, device)| device).next())
    }

    /// Creates an overlay without facts.
    pub(crate) fn empty(evidence: Evidence) -> Self {
        Self {
            evidence,
            switches: BTreeMap::new(),
            devices: BTreeMap::new(),
            cpus: BTreeMap::new(),
            nvlinks: BTreeMap::new(),
            xgmi: BTreeSet::new(),
        }
    }

    /// Its devices of a display or accelerator class.
    fn gpus(&self) -> Vec<PciAddress> {
        let gpus = self.devices.iter().filter(|(_, device)| device.class.is_some_and(is_gpu));
        gpus.map(|(address, _)| *address).collect()
    }

    /// Connects every two of these GPUs by this number of NVLinks, as an NVSwitch does.
    fn mesh(&mut self, gpus: &BTreeSet<PciAddress>, links: u32) {
        for (index, &a) in gpus.iter().enumerate() {
            self.devices.entry(a).or_default();
            for &b in gpus.iter().skip(index + 1) {
                self.nvlinks.insert((a, b), links);
            }
        }
    }
}
