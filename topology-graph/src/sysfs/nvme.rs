//! NVMe controllers and the PCI functions behind them, from `class/nvme`.

use super::tree::{Tree, pci_parent};
use crate::snapshot::NvmeController;

const CONTROLLERS: &str = "class/nvme";

pub(super) fn controllers(sys: &mut Tree) -> Vec<NvmeController> {
    let names = sys.names(CONTROLLERS);
    let controllers = names.into_iter().filter_map(|name| {
        let place = sys.link(&format!("{CONTROLLERS}/{name}"))?;
        Some(NvmeController { pci: pci_parent(&place), name })
    });
    controllers.collect()
}
