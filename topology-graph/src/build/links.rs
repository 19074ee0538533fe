//! The links between GPUs beside PCIe: XGMI from its driver, NVLinks from overlays.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Branches, about};
use crate::graph::{Fabric, GpuLink, Place, Role};
use crate::{Anomaly, AnomalyKind, Evidence, Overlay, PciAddress, Snapshot, XgmiLink};

/// Links by their GPUs, the lower address first.
type Links = BTreeMap<(PciAddress, PciAddress), GpuLink>;

pub(super) fn between_gpus(
    snapshot: &Snapshot,
    overlays: &[&Overlay],
    branches: &Branches,
    anomalies: &mut Vec<Anomaly>,
) -> Vec<GpuLink> {
    let xgmi = snapshot.xgmi.iter().map(|&XgmiLink { a, b, hops }| GpuLink {
        gpus: (a, b),
        fabric: Fabric::Xgmi { hops },
        evidence: Evidence::Sysfs,
    });
    let nvlinks = overlays.iter().flat_map(|overlay| nvlinks(overlay));
    let mut links = Links::new();
    for link in xgmi.chain(nvlinks).filter(|link| are_gpus(link.gpus, branches)) {
        anomalies.extend(add(link, &mut links));
    }
    links.into_values().collect()
}

/// What an overlay tells of NVLinks.
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

/// What is told first is kept.
fn add(link: GpuLink, links: &mut Links) -> Option<Anomaly> {
    match links.entry(link.gpus) {
        Entry::Vacant(entry) => {
            entry.insert(link);
            None
        }
        Entry::Occupied(entry) => {
            let known = entry.get();
            let detail = format!(
                "{} says {} to {}, {} says {}; the first is kept",
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
