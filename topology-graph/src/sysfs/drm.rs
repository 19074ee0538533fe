//! DRM devices and the PCI functions behind them, from `class/drm`. Intel's drivers show nothing
//! else about a GPU in sysfs.

use std::collections::BTreeMap;

use super::tree::{Tree, pci_parent};
use crate::PciAddress;
use crate::class::is_display;
use crate::snapshot::{GpuFacts, PciFunction};

const DEVICES: &str = "class/drm";
const INTEL: u16 = 0x8086;

/// Sets the cards of known GPUs, and adds GPUs that only DRM knows.
pub(super) fn name(sys: &mut Tree, pci: &[PciFunction], gpus: &mut Vec<GpuFacts>) {
    let mut cards = cards(sys);
    for gpu in &mut *gpus {
        gpu.drm_card = cards.remove(&gpu.address);
    }
    let intel =
        pci.iter().filter(|function| function.vendor == INTEL && is_display(function.class));
    gpus.extend(intel.filter_map(|function| {
        let drm_card = Some(cards.remove(&function.address)?);
        Some(GpuFacts { address: function.address, uuid: None, model: None, drm_card })
    }));
}

fn cards(sys: &mut Tree) -> BTreeMap<PciAddress, String> {
    let names = sys.names(DEVICES).into_iter().filter(|name| is_card(name));
    let cards = names.collect::<Vec<_>>().into_iter().filter_map(|name| {
        let place = sys.link(&format!("{DEVICES}/{name}"))?;
        Some((pci_parent(&place)?, name))
    });
    cards.collect()
}

/// Returns true for `card0`, but not for connectors (`card0-DP-1`) and render nodes.
fn is_card(name: &str) -> bool {
    let digits = name.strip_prefix("card");
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}
