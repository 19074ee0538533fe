//! Links between GPUs other than PCIe: XGMI from AMD's driver; NVLinks from listings and overlays, or
//! otherwise from the GPU model.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{Branches, about};
use crate::class::NVSWITCH;
use crate::graph::{Fabric, GpuLink, Place, Role};
use crate::nvlink::NvLinks;
use crate::vendor::NVIDIA;
use crate::{Anomaly, AnomalyKind, Evidence, NvLinkFacts, Overlay, PciAddress, Snapshot, XgmiLink};

/// Links by their GPUs, the lower address first.
type Links = BTreeMap<(PciAddress, PciAddress), GpuLink>;

pub(super) fn between_gpus(
    snapshot: &Snapshot,
    overlays: &[&Overlay],
    branches: &Branches,
    anomalies: &mut Vec<Anomaly>,
) -> Vec<GpuLink> {
    let xgmi = snapshot.xgmi.iter().map(|&XgmiLink { a, b, hops, bandwidth }| GpuLink {
        gpus: (a, b),
        fabric: Fabric::Xgmi { hops, bandwidth },
        evidence: Evidence::Sysfs,
    });
    let nvlinks = snapshot.nvlinks.iter().map(|&NvLinkFacts { a, b, links }| GpuLink {
        gpus: (a, b),
        fabric: Fabric::NvLink { links },
        evidence: Evidence::Sysfs,
    });
    let told = overlays.iter().flat_map(|overlay| of_overlay(overlay));
    let mut links = Links::new();
    for link in xgmi.chain(nvlinks).chain(told).filter(|link| are_gpus(link.gpus, branches)) {
        anomalies.extend(add(link, &mut links));
    }
    let has_switches =
        snapshot.pci.iter().any(|function| function.vendor == NVIDIA && function.class == NVSWITCH);
    let mut links: Vec<GpuLink> = links.into_values().collect();
    let named_nvl4 = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.model.as_ref().is_some_and(|model| model.contains("NVL4")))
        .map(|gpu| gpu.address)
        .collect();
    links.extend(by_model(branches, &links, &named_nvl4, has_switches));
    links.sort_unstable_by_key(|link| link.gpus);
    links
}

/// The NVLinks that follow from the GPU model, for GPUs without links from any source.
/// `has_switches` is true if the machine shows its NVSwitches; they then connect any number of
/// GPUs. `named_nvl4` are GPUs whose driver names them as of a board of four without NVSwitches.
pub(super) fn by_model(
    branches: &Branches,
    known: &[GpuLink],
    named_nvl4: &BTreeSet<PciAddress>,
    has_switches: bool,
) -> Vec<GpuLink> {
    let told: BTreeSet<PciAddress> =
        known.iter().flat_map(|link| [link.gpus.0, link.gpus.1]).collect();
    let mut models: BTreeMap<(u16, u16), Vec<PciAddress>> = BTreeMap::new();
    for (place, branch) in branches.iter().filter(|(_, branch)| branch.vertex.role == Role::Gpu) {
        if let (Place::Function(address), Some(id)) = (place, branch.vertex.id) {
            models.entry(id).or_default().push(*address);
        }
    }
    let mut links = Vec::new();
    for (id, gpus) in models {
        // GB200 NVL4 has the PCI ID of GB200.
        let is_nvl4 = gpus.iter().all(|gpu| named_nvl4.contains(gpu));
        let (count, is_whole) = match NvLinks::new(id) {
            NvLinks::Switched { links, board } if is_nvl4 => (links / 3, gpus.len() == board),
            NvLinks::Switched { links, board } => (links, has_switches || gpus.len() == board),
            NvLinks::Direct { links, board } => (links, gpus.len() == board),
            NvLinks::Absent | NvLinks::Unknown => continue,
        };
        if is_whole && gpus.iter().all(|gpu| !told.contains(gpu)) {
            links.extend(mesh(&gpus, count));
        }
    }
    links
}

/// A link between every two of these GPUs, which are in address order.
fn mesh(gpus: &[PciAddress], links: u32) -> impl Iterator<Item = GpuLink> {
    let pairs = gpus
        .iter()
        .enumerate()
        .flat_map(|(index, a)| gpus.iter().skip(index + 1).map(move |b| (*a, *b)));
    pairs.map(move |gpus| GpuLink {
        gpus,
        fabric: Fabric::NvLink { links },
        evidence: Evidence::GpuModel,
    })
}

/// The links of an overlay. NCCL's files name only neighbours on XGMI.
pub(super) fn of_overlay(overlay: &Overlay) -> impl Iterator<Item = GpuLink> {
    let nvlinks = overlay.nvlinks.iter().map(|(gpus, links)| (*gpus, *links));
    let nvlinks = nvlinks.map(|(gpus, links)| (gpus, Fabric::NvLink { links }));
    let neighbours = Fabric::Xgmi { hops: Some(1), bandwidth: None };
    let xgmi = overlay.xgmi.iter().map(move |gpus| (*gpus, neighbours));
    nvlinks.chain(xgmi).map(|(gpus, fabric)| GpuLink {
        gpus,
        fabric,
        evidence: overlay.evidence.clone(),
    })
}

pub(super) fn are_gpus((a, b): (PciAddress, PciAddress), branches: &Branches) -> bool {
    [a, b].into_iter().all(|address| {
        branches.get(&Place::Function(address)).is_some_and(|branch| branch.role() == Role::Gpu)
    })
}

/// Adds a link. The first source wins; a conflicting source is reported as an anomaly.
fn add(link: GpuLink, links: &mut Links) -> Option<Anomaly> {
    match links.entry(link.gpus) {
        Entry::Vacant(entry) => {
            entry.insert(link);
            None
        }
        Entry::Occupied(entry) => {
            let known = entry.get();
            let detail = format!(
                "{} says {} to {}, {} says {}; the first wins",
                known.evidence,
                known.fabric.path(),
                link.gpus.1,
                link.evidence,
                link.fabric.path(),
            );
            (known.fabric.path() != link.fabric.path())
                .then(|| about(link.gpus.0, AnomalyKind::GpuLinksDisagree, detail))
        }
    }
}
