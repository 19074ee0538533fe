//! Interprets an NCCL topology file as an overlay.

use std::collections::{BTreeMap, BTreeSet};

use super::{Element, NcclXml};
use crate::class::{DISPLAY_3D, ETHERNET, NVSWITCH, is_bridge};
use crate::overlay::{OverlayDevice, OverlaySwitch};
use crate::{CpuSet, Evidence, NumaNode, Overlay, PciAddress, PcieLink};

/// The state of the walk over the document.
struct Walk {
    overlay: Overlay,
    /// The number of NVLinks from each GPU into the switches that all GPUs share.
    into_switch: BTreeMap<PciAddress, u32>,
}

impl NcclXml {
    /// The overlay that this file describes; `evidence` is the source of its facts.
    pub(crate) fn overlay(&self, evidence: Evidence) -> Overlay {
        let mut walk = Walk { overlay: Overlay::empty(evidence), into_switch: BTreeMap::new() };
        for cpu in self.system.children("cpu") {
            // NCCL writes -1 for an unknown CPU.
            let numa = cpu.attribute("numaid").and_then(|id| id.parse().ok()).map(NumaNode);
            let cpus = cpu.attribute("affinity").and_then(CpuSet::from_mask);
            walk.overlay.cpus.extend(numa.zip(cpus));
            for pci in cpu.children("pci") {
                walk.pci(pci, numa, None);
            }
        }
        walk.join_through_switches();
        walk.overlay
    }
}

impl Walk {
    /// Adds a device or switch. The first occurrence of a device counts. A switch that occurs below
    /// two CPUs is one switch with the devices of both.
    fn pci(&mut self, pci: &Element, numa: Option<NumaNode>, switch: Option<PciAddress>) {
        let Some(address) = pci.bus_id() else { return };
        let Overlay { switches, devices, .. } = &mut self.overlay;
        if devices.contains_key(&address) {
            return;
        }
        if is_switch(pci) || switches.contains_key(&address) {
            let (link, id) = (link(pci), id(pci));
            switches.entry(address).or_insert(OverlaySwitch { parent: switch, link, id });
            for child in pci.children("pci") {
                self.pci(child, numa, Some(address));
            }
        } else {
            devices.insert(address, device(pci, numa, switch));
            for gpu in pci.children("gpu") {
                self.nvlinks(address, gpu);
                self.xgmi(address, gpu);
            }
        }
    }

    fn nvlinks(&mut self, gpu: PciAddress, element: &Element) {
        for nvlink in element.children("nvlink") {
            let links = nvlink.attribute("count").and_then(|count| count.parse().ok());
            let Some(links) = links.filter(|links| *links > 0) else { continue };
            if hex(nvlink, "tclass") == Some(NVSWITCH) {
                let sum = self.into_switch.entry(gpu).or_default();
                *sum = u32::saturating_add(*sum, links);
            } else if let Some(Ok(peer)) = nvlink.attribute("target").map(str::parse::<PciAddress>)
                && peer != gpu
            {
                self.overlay.nvlinks.insert((gpu.min(peer), gpu.max(peer)), links);
            }
        }
    }

    fn xgmi(&mut self, gpu: PciAddress, element: &Element) {
        for link in element.children("xgmi") {
            if let Some(Ok(peer)) = link.attribute("target").map(str::parse::<PciAddress>)
                && peer != gpu
            {
                self.overlay.xgmi.insert((gpu.min(peer), gpu.max(peer)));
            }
        }
    }

    /// GPUs on a common NVSwitch reach each other by as many links as both have.
    fn join_through_switches(&mut self) {
        let gpus: BTreeSet<PciAddress> = self.into_switch.keys().copied().collect();
        for (index, a) in gpus.iter().enumerate() {
            for b in gpus.iter().skip(index + 1) {
                let links = self.into_switch[a].min(self.into_switch[b]);
                self.overlay.nvlinks.insert((*a, *b), links);
            }
        }
    }
}

fn device(pci: &Element, numa: Option<NumaNode>, switch: Option<PciAddress>) -> OverlayDevice {
    let nets = pci.children("nic").flat_map(|nic| nic.children("net"));
    OverlayDevice {
        switch,
        numa,
        class: hex(pci, "class").or_else(|| class_by_content(pci)),
        id: id(pci),
        link: link(pci),
        names: nets.filter_map(|net| net.attribute("name")).map(str::to_owned).collect(),
    }
}

/// The class of a device that is written without one but with what it is.
fn class_by_content(pci: &Element) -> Option<u32> {
    let gpu = pci.has_child("gpu").then_some(DISPLAY_3D);
    gpu.or_else(|| pci.has_child("nic").then_some(ETHERNET))
}

fn link(pci: &Element) -> Option<PcieLink> {
    PcieLink::parse(pci.attribute("link_speed")?, pci.attribute("link_width")?)
}

/// The vendor and device ID. Files for virtual machines have 0 or `0xffff` for switches that they invent.
fn id(pci: &Element) -> Option<(u16, u16)> {
    let vendor = u16::try_from(hex(pci, "vendor")?).ok()?;
    let device = u16::try_from(hex(pci, "device")?).ok()?;
    (![0, u16::MAX].contains(&vendor)).then_some((vendor, device))
}

fn is_switch(pci: &Element) -> bool {
    hex(pci, "class").is_some_and(is_bridge) || pci.has_child("pci")
}

/// Parses a hexadecimal number, `0x030200`.
fn hex(element: &Element, attribute: &str) -> Option<u32> {
    let text = element.attribute(attribute)?;
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}
