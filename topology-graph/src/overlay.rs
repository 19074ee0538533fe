//! What is known of a machine beside its sysfs: switches that a hypervisor
//! hides, NUMA nodes, NVLinks.
//!
//! An overlay names devices by bus id and is joined with the facts when the
//! graph is built. Who asks the cloud for the name of the machine is the caller.

mod built_in;

use std::collections::{BTreeMap, BTreeSet};

use crate::class::is_gpu;
use crate::nccl::NcclXml;
use crate::{CpuSet, Evidence, NumaNode, PciAddress, PcieLink};

/// A description to lay over a machine's own facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    pub(crate) evidence: Evidence,
    pub(crate) switches: BTreeMap<PciAddress, OverlaySwitch>,
    pub(crate) devices: BTreeMap<PciAddress, OverlayDevice>,
    /// The CPUs of NUMA nodes, where told.
    pub(crate) cpus: BTreeMap<NumaNode, CpuSet>,
    /// NVLinks between two GPUs, the lower address first.
    pub(crate) nvlinks: BTreeMap<(PciAddress, PciAddress), u32>,
}

/// A whole switch, whose bus id is invented where a hypervisor hides it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlaySwitch {
    /// The switch above.
    pub(crate) parent: Option<PciAddress>,
    /// Its link to what is above, where told.
    pub(crate) link: Option<PcieLink>,
}

/// A GPU or NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlayDevice {
    pub(crate) switch: Option<PciAddress>,
    pub(crate) numa: Option<NumaNode>,
    /// PCI class, where told.
    pub(crate) class: Option<u32>,
    /// Vendor and device id, where told.
    pub(crate) id: Option<(u16, u16)>,
    /// Its link, where told.
    pub(crate) link: Option<PcieLink>,
}

impl Overlay {
    /// The description of a cloud's virtual machine size, if this crate has one.
    /// Case does not matter: clouds write names in several ways.
    pub fn built_in(vm_size: &str) -> Option<Self> {
        built_in::overlay(vm_size)
    }

    /// What an NCCL topology file tells, as NCCL itself takes it.
    pub fn from_nccl_xml(xml: &NcclXml) -> Self {
        xml.overlay(Evidence::NcclXml)
    }

    /// What its facts are marked with.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// One that tells nothing yet.
    pub(crate) fn empty(evidence: Evidence) -> Self {
        Self {
            evidence,
            switches: BTreeMap::new(),
            devices: BTreeMap::new(),
            cpus: BTreeMap::new(),
            nvlinks: BTreeMap::new(),
        }
    }

    /// Its devices of a display or accelerator class.
    fn gpus(&self) -> Vec<PciAddress> {
        let gpus = self.devices.iter().filter(|(_, device)| device.class.is_some_and(is_gpu));
        gpus.map(|(address, _)| *address).collect()
    }

    /// Every two of these GPUs are joined by that many NVLinks, as through an NVSwitch.
    fn mesh(&mut self, gpus: &BTreeSet<PciAddress>, links: u32) {
        for (index, &a) in gpus.iter().enumerate() {
            self.devices.entry(a).or_default();
            for &b in gpus.iter().skip(index + 1) {
                self.nvlinks.insert((a, b), links);
            }
        }
    }
}
