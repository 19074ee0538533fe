//! Switches that only the overlay knows. They go between a device and its root bus if sysfs shows
//! no bridge there. If sysfs shows bridges, those stay, and a disagreement is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use super::{Branches, about};
use crate::graph::{Branch, Place, Role, Vertex};
use crate::{Anomaly, AnomalyKind, Overlay, PciAddress, Snapshot};

pub(super) fn add(
    overlay: &Overlay,
    snapshot: &Snapshot,
    branches: &mut Branches,
    anomalies: &mut Vec<Anomaly>,
) {
    for (switch, members) in members(overlay, branches, anomalies) {
        let bridged = |member: &PciAddress| {
            snapshot.function(*member).is_some_and(|function| !function.bridges.is_empty())
        };
        let (visible, hidden): (Vec<_>, Vec<_>) = members.into_iter().partition(bridged);
        anomalies.extend(disagreement(switch, &visible, &hidden, snapshot));
        let told = hidden.iter().filter_map(|member| known_switch(*member, branches));
        let told: Vec<Place> = told.collect();
        if told.is_empty() {
            put_below(switch, &hidden, overlay, branches);
        } else if told.len() < hidden.len() || told.iter().any(|switch| *switch != told[0]) {
            let detail = format!(
                "{} shows other switches than an overlay with higher priority",
                overlay.evidence
            );
            anomalies.push(about(switch, AnomalyKind::SwitchDisagrees, detail));
        }
    }
    drop_unused_roots(branches);
}

/// The devices of each switch that are on the machine.
fn members(
    overlay: &Overlay,
    branches: &Branches,
    anomalies: &mut Vec<Anomaly>,
) -> BTreeMap<PciAddress, Vec<PciAddress>> {
    let mut members: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (&address, device) in &overlay.devices {
        if !branches.contains_key(&Place::Function(address)) {
            let detail =
                format!("{} names it, but this machine has no such device", overlay.evidence);
            anomalies.push(about(address, AnomalyKind::OverlayDeviceMissing, detail));
        } else if let Some(switch) = device.switch {
            members.entry(switch).or_default().push(address);
        }
    }
    members
}

/// Reports a conflict: members of one switch must share a bridge in sysfs, if sysfs shows bridges
/// above any of them.
fn disagreement(
    switch: PciAddress,
    visible: &[PciAddress],
    hidden: &[PciAddress],
    snapshot: &Snapshot,
) -> Option<Anomaly> {
    let bridges = visible.iter().filter_map(|member| snapshot.function(*member));
    let bridges = bridges.map(|function| function.bridges.iter().copied().collect::<BTreeSet<_>>());
    let shared = bridges.reduce(|all, bridges| &all & &bridges)?;
    (shared.is_empty() || !hidden.is_empty()).then(|| {
        let detail = "the overlay connects devices that share no bridge in sysfs; sysfs wins";
        about(switch, AnomalyKind::SwitchDisagrees, detail)
    })
}

/// The switch below which an earlier overlay put a device.
fn known_switch(member: PciAddress, branches: &Branches) -> Option<Place> {
    let switch = branches.get(&parent(member, branches)?)?;
    (switch.role() == Role::Switch).then_some(switch.place())
}

fn put_below(
    switch: PciAddress,
    members: &[PciAddress],
    overlay: &Overlay,
    branches: &mut Branches,
) {
    if members.is_empty() {
        return;
    }
    let roots: BTreeSet<_> = members.iter().map(|member| parent(*member, branches)).collect();
    let root = match roots.len() {
        1 => roots.into_iter().flatten().next(),
        // Each virtual function has a separate root, so different roots mean nothing.
        _ => None,
    };
    add_switches(switch, root, overlay, branches);
    let place = Place::Function(switch);
    let above = ancestors(place, branches);
    for member in members.iter().map(|member| Place::Function(*member)) {
        if let Some(branch) = branches.get_mut(&member)
            && member != place
            && !above.contains(&member)
        {
            branch.parent = Some(place);
            branch.vertex.evidence = overlay.evidence.clone();
        }
    }
}

/// Adds a switch and those above it, if they are missing.
fn add_switches(
    switch: PciAddress,
    root: Option<Place>,
    overlay: &Overlay,
    branches: &mut Branches,
) {
    let mut next = Some(switch);
    while let Some(address) = next.take().filter(|a| !branches.contains_key(&Place::Function(*a))) {
        let switch = overlay.switches.get(&address);
        let above = switch.and_then(|switch| switch.parent);
        let place = Place::Function(address);
        let vertex = Vertex {
            max_link: switch.and_then(|switch| switch.link),
            evidence: overlay.evidence.clone(),
            ..Vertex::new(place, Role::Switch)
        };
        let parent = above.map(Place::Function).or(root);
        branches.insert(place, Branch { vertex, parent, data_path: None });
        next = above;
    }
}

fn ancestors(place: Place, branches: &Branches) -> BTreeSet<Place> {
    let parent = |place: &Place| branches.get(place).and_then(|branch| branch.parent);
    successors(parent(&place), parent).collect()
}

fn parent(address: PciAddress, branches: &Branches) -> Option<Place> {
    branches.get(&Place::Function(address))?.parent
}

/// Removes roots without vertices below them.
fn drop_unused_roots(branches: &mut Branches) {
    let used: BTreeSet<Place> = branches.values().filter_map(|branch| branch.parent).collect();
    branches.retain(|place, branch| branch.role() != Role::HostBridge || used.contains(place));
}
