//! Descriptions that this crate carries, by the cloud's name of the machine.

use std::collections::BTreeSet;

use super::Overlay;
use crate::{Evidence, PciAddress};

/// GB300 in Azure: four Blackwell GPUs on one NVLink domain, 18 links each.
/// The NICs' and GPUs' places are sysfs's own. Source: the matrix of
/// `nvidia-smi topo -m` in Azure's documents of the size.
const AZURE_GB300: &str = "Standard_ND128isr_GB300_v6";
const AZURE_GB300_GPUS: [&str; 4] =
    ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"];
const AZURE_GB300_NVLINKS: u32 = 18;

pub(super) fn overlay(vm_size: &str) -> Option<Overlay> {
    vm_size.eq_ignore_ascii_case(AZURE_GB300).then(azure_gb300)
}

fn azure_gb300() -> Overlay {
    let mut overlay = Overlay::empty(Evidence::Overlay(AZURE_GB300.to_owned()));
    let gpus: BTreeSet<PciAddress> =
        AZURE_GB300_GPUS.iter().filter_map(|gpu| gpu.parse().ok()).collect();
    overlay.mesh(&gpus, AZURE_GB300_NVLINKS);
    overlay
}
