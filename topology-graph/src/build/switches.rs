//! Switches that only the overlay knows. They go between a device and its root bus if sysfs shows
//! no bridge there, or only bridges that a hypervisor emulates. If sysfs shows hardware, that stays,
//! and a disagreement is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use super::{Branches, about};
use crate::graph::{Branch, Place, Role, Vertex};
use crate::vendor::is_emulated_bridge;
use crate::{Anomaly, AnomalyKind, Overlay, PciAddress, Snapshot};

/// The devices of each switch that are on the machine.
type Members = BTreeMap<PciAddress, Vec<PciAddress>>;

pub(super) fn add(
    overlay: &Overlay,
    snapshot: &Snapshot,
    branches: &mut Branches,
    anomalies: &mut Vec<Anomaly>,
) {
    let members = members(overlay, branches, anomalies);
    let shown = Shown { snapshot, members: &members };
    for (&switch, members) in &members {
        let (visible, hidden): (Vec<_>, Vec<_>) =
            members.iter().copied().partition(|member| shown.is_by_hardware(*member));
        anomalies.extend(disagreement(switch, &visible, &hidden, snapshot));
        if shown.is_emulated_alike(&hidden) {
            continue;
        }
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
    drop_unused(branches);
}

/// Groups the machine's devices by the switch that the overlay names for them.
fn members(overlay: &Overlay, branches: &Branches, anomalies: &mut Vec<Anomaly>) -> Members {
    for &address in overlay.devices.keys() {
        if !branches.contains_key(&Place::Function(address)) {
            let detail =
                format!("{} names it, but this machine has no such device", overlay.evidence);
            anomalies.push(about(address, AnomalyKind::OverlayDeviceMissing, detail));
        }
    }
    let mut members = Members::new();
    for address in branches.values().filter_map(|branch| branch.vertex.endpoint()) {
        let switch = overlay.device(address).and_then(|device| device.switch);
        if let Some(switch) = switch {
            members.entry(switch).or_default().push(address);
        }
    }
    members
}

/// What sysfs shows above the devices of an overlay.
struct Shown<'s> {
    snapshot: &'s Snapshot,
    members: &'s Members,
}

impl Shown<'_> {
    /// Returns true if a bridge above the device is hardware.
    fn is_by_hardware(&self, device: PciAddress) -> bool {
        self.bridges(device).any(|bridge| {
            let id = self.snapshot.function(bridge).map(|bridge| (bridge.vendor, bridge.device));
            !id.is_some_and(is_emulated_bridge)
        })
    }

    /// Returns true if the emulated bridges group devices as the overlay does: these share a bridge,
    /// and no device of another switch has it too.
    fn is_emulated_alike(&self, devices: &[PciAddress]) -> bool {
        let bridges = devices.iter().map(|device| self.bridges(*device).collect());
        let Some(shared) = bridges.reduce(|all: BTreeSet<_>, bridges| &all & &bridges) else {
            return false;
        };
        let others = self.members.values().flatten().filter(|other| !devices.contains(other));
        let elsewhere: BTreeSet<PciAddress> =
            others.flat_map(|other| self.bridges(*other)).collect();
        devices.len() > 1 && !shared.is_subset(&elsewhere)
    }

    fn bridges(&self, device: PciAddress) -> impl Iterator<Item = PciAddress> {
        let function = self.snapshot.function(device);
        function.into_iter().flat_map(|function| function.bridges.iter().copied())
    }
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
    let switch = branches.get(&parent(Place::Function(member), branches)?)?;
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
    let roots: BTreeSet<_> = members.iter().map(|member| root_above(*member, branches)).collect();
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

fn root_above(device: PciAddress, branches: &Branches) -> Option<Place> {
    let chain = successors(Some(Place::Function(device)), |place| parent(*place, branches));
    chain.last().filter(|place| matches!(place, Place::Root(_)))
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
            id: switch.and_then(|switch| switch.id),
            evidence: overlay.evidence.clone(),
            ..Vertex::new(place, Role::Switch)
        };
        let parent = above.map(Place::Function).or(root);
        branches.insert(place, Branch { vertex, parent, data_path: None });
        next = above;
    }
}

fn ancestors(place: Place, branches: &Branches) -> BTreeSet<Place> {
    successors(parent(place, branches), |place| parent(*place, branches)).collect()
}

fn parent(place: Place, branches: &Branches) -> Option<Place> {
    branches.get(&place)?.parent
}

/// Removes root buses and ports without vertices below them.
fn drop_unused(branches: &mut Branches) {
    loop {
        let used: BTreeSet<Place> = branches.values().filter_map(|branch| branch.parent).collect();
        let before = branches.len();
        branches.retain(|place, branch| {
            let is_above = branch.role() == Role::HostBridge || branch.role().is_port();
            !is_above || used.contains(place)
        });
        if branches.len() == before {
            return;
        }
    }
}
