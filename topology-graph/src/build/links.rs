//! Links between GPUs other than PCIe: XGMI from AMD's driver; NVLinks from overlays, or otherwise
//! from the GPU model.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{Branches, about};
use crate::class::NVSWITCH;
use crate::graph::{Fabric, GpuLink, Place, Role};
use crate::nvlink::{NVIDIA, NvLinks};
use crate::{Anomaly, AnomalyKind, Evidence, Overlay, PciAddress, Snapshot, XgmiLink};

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
    let nvlinks = overlays.iter().flat_map(|overlay| nvlinks(overlay));
    let mut links = Links::new();
    for link in xgmi.chain(nvlinks).filter(|link| are_gpus(link.gpus, branches)) {
        anomalies.extend(add(link, &mut links));
    }
    let has_switches =
        snapshot.pci.iter().any(|function| function.vendor == NVIDIA && function.class == NVSWITCH);
    let mut links: Vec<GpuLink> = links.into_values().collect();
    links.extend(by_model(branches, &links, has_switches));
    links.sort_unstable_by_key(|link| link.gpus);
    links
}

/// The NVLinks that follow from the GPU model, for GPUs without links from any source.
/// `has_switches` is true if the machine shows its NVSwitches; they then connect any number of
/// GPUs.
pub(super) fn by_model(branches: &Branches, known: &[GpuLink], has_switches: bool) -> Vec<GpuLink> {
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
        let NvLinks::Switched { links: count, board } = NvLinks::of(id) else { continue };
        let is_whole = has_switches || gpus.len() == board;
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

/// The NVLinks of an overlay.
pub(super) fn nvlinks(overlay: &Overlay) -> impl Iterator<Item = GpuLink> {
    overlay.nvlinks.iter().map(|(&gpus, &links)| GpuLink {
        gpus,
        fabric: Fabric::NvLink { links },
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
            (known.fabric != link.fabric)
                .then(|| about(link.gpus.0, AnomalyKind::GpuLinksDisagree, detail))
        }
    }
}
