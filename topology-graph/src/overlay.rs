//! What is known of a machine beside its sysfs: switches that a hypervisor
//! hides, NUMA nodes, NVLinks.
//!
//! An overlay names devices by bus id and is joined with the facts when the
//! graph is built. Who asks the cloud for the name of the machine is the caller.

mod built_in;

use std::collections::{BTreeMap, BTreeSet};

use crate::{Evidence, NumaNode, PciAddress};

/// A description to lay over a machine's own facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    pub(crate) evidence: Evidence,
    pub(crate) switches: BTreeMap<PciAddress, OverlaySwitch>,
    pub(crate) devices: BTreeMap<PciAddress, OverlayDevice>,
    /// NVLinks between two GPUs, the lower address first.
    pub(crate) nvlinks: BTreeMap<(PciAddress, PciAddress), u32>,
}

/// A whole switch, whose bus id is invented where a hypervisor hides it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlaySwitch {
    pub(crate) parent: Option<PciAddress>,
}

/// A GPU or NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlayDevice {
    pub(crate) switch: Option<PciAddress>,
    pub(crate) numa: Option<NumaNode>,
}

impl Overlay {
    /// The description of a cloud's virtual machine size, if this crate has one.
    /// Case does not matter: clouds write names in several ways.
    pub fn built_in(vm_size: &str) -> Option<Self> {
        built_in::overlay(vm_size)
    }

    /// What its facts are marked with.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// One that tells nothing yet.
    fn empty(evidence: Evidence) -> Self {
        Self {
            evidence,
            switches: BTreeMap::new(),
            devices: BTreeMap::new(),
            nvlinks: BTreeMap::new(),
        }
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
