//! Descriptions in this crate, by the cloud's name of the machine.
//!
//! The files in `overlays/` are unchanged copies. They do not contain NVLinks; their number per VM
//! size is what NCCL or `nvidia-smi topo -m` shows on machines with these GPUs, where NVSwitches
//! connect all GPUs. `overlays/SOURCE.md` has the sources; for sizes that it does not list, NVLinks
//! are unknown.

use super::Overlay;
use crate::nccl::NcclXml;
use crate::{Evidence, PciAddress};

/// Machines of one kind.
struct Entry {
    /// Names in lower case; `*` matches any text.
    names: &'static [&'static str],
    /// An NCCL topology file.
    file: Option<&'static str>,
    /// GPUs connected by NVSwitch, if no file names them.
    gpus: &'static [&'static str],
    /// The number of NVLinks per GPU into the NVSwitches.
    nvlinks: Option<u32>,
}

/// NVLinks of one A100 of eight.
const A100: Option<u32> = Some(12);
/// NVLinks of one H100 or H200 of eight.
const H100: Option<u32> = Some(18);
/// NVLinks of one GB300 of four.
const GB300: Option<u32> = Some(18);

const ENTRIES: &[Entry] = &[
    Entry {
        // On these sizes, sysfs shows the places of GPUs and NICs, and nothing else is needed.
        names: &[
            "p5.48xlarge",
            "p5en.48xlarge",
            "p6-b200.48xlarge",
            "p6-b300.48xlarge",
            "a4-highgpu-8g",
            "bm.gpu*",
            "standard_nd96is*_mi300x_v5",
        ],
        file: None,
        gpus: &[],
        nvlinks: None,
    },
    Entry {
        // On this size, sysfs shows the real places of GPUs and NICs.
        names: &["standard_nd128isr_gb300_v6"],
        file: None,
        gpus: &["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"],
        nvlinks: GB300,
    },
    Entry {
        names: &["standard_nd96is*_h100_v5", "standard_nd96is*_h200_v5"],
        file: Some(include_str!("../../overlays/azure-ndv5-topo.xml")),
        gpus: &[],
        nvlinks: H100,
    },
    Entry {
        names: &["standard_nd96*v4"],
        file: Some(include_str!("../../overlays/azure-ndv4-topo.xml")),
        gpus: &[],
        nvlinks: A100,
    },
    Entry {
        names: &["standard_nc96ads_a100_v4"],
        file: Some(include_str!("../../overlays/azure-ncv4-topo.xml")),
        gpus: &[],
        nvlinks: None,
    },
    Entry {
        names: &["standard_nd40rs_v2"],
        file: Some(include_str!("../../overlays/azure-ndv2-topo.xml")),
        gpus: &[],
        nvlinks: None,
    },
    Entry {
        names: &["p4d.24xlarge"],
        file: Some(include_str!("../../overlays/aws-p4d-24xl-topo.xml")),
        gpus: &[],
        nvlinks: A100,
    },
    Entry {
        names: &["p4de.24xlarge"],
        file: Some(include_str!("../../overlays/aws-p4de-24xl-topo.xml")),
        gpus: &[],
        nvlinks: A100,
    },
    Entry {
        names: &["g5.48xlarge"],
        file: Some(include_str!("../../overlays/aws-g5.48xl-topo.xml")),
        gpus: &[],
        nvlinks: None,
    },
];

pub(super) fn overlay(vm_size: &str) -> Option<Overlay> {
    let name = vm_size.to_ascii_lowercase();
    let Entry { file, gpus, nvlinks, .. } =
        ENTRIES.iter().find(|entry| entry.names.iter().any(|pattern| matches(pattern, &name)))?;
    let evidence = Evidence::Overlay(name);
    let mut overlay = match file.map(NcclXml::parse) {
        Some(xml) => xml.ok()?.overlay(evidence),
        None => Overlay::empty(evidence),
    };
    if let Some(links) = nvlinks {
        let named = gpus.iter().filter_map(|gpu| gpu.parse().ok());
        let gpus = named.chain(overlay.gpus()).collect::<Vec<PciAddress>>();
        overlay.mesh(&gpus.into_iter().collect(), *links);
    }
    Some(overlay)
}

/// Matches a pattern with at most one `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            let middle = name.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail));
            middle.is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_devices() {
        for entry in ENTRIES.iter().filter(|entry| entry.file.is_some() || !entry.gpus.is_empty()) {
            for name in entry.names {
                let overlay = overlay(&name.replace('*', "ms")).expect(name);
                assert!(overlay.devices.len() >= 4, "{name}: {:?}", overlay.devices);
            }
        }
    }

    #[test]
    fn names_match_as_the_cloud_writes_them() {
        for name in [
            "Standard_ND96isr_H100_v5",
            "standard_nd96isr_h200_v5",
            "Standard_ND96amsr_A100_v4",
            "Standard_ND96asr_v4",
            "p4d.24xlarge",
            "p5en.48xlarge",
            "BM.GPU.H100.8",
            "Standard_ND96isr_MI300X_v5",
        ] {
            assert!(overlay(name).is_some(), "{name}");
        }
        for name in ["", "Standard_D2s_v5", "Standard_ND96isr_MI400X_v6", "p4d.24xlarge.x"] {
            assert!(overlay(name).is_none(), "{name}");
        }
    }
}
