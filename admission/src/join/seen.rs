//! What a claim says about one machine. Two claims that say the same about a machine, in the same
//! order, give a pod the same there, whatever else they list.

use super::form::{Across, CellWay, Form, Way};
use cluster_model::machines::Machine;
use std::collections::BTreeSet;
use topology_graph::{PciAddress, ShapeHash};

/// A way that can serve a pod on a machine, and what it selects there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Devices with the same value of this attribute.
    Attribute(&'static str),
    /// These GPUs and NICs.
    Cell(BTreeSet<PciAddress>, BTreeSet<PciAddress>),
    /// So many of these GPUs, and so many of these NICs, of each NUMA node.
    Across(Vec<(BTreeSet<PciAddress>, u32)>, Vec<(BTreeSet<PciAddress>, u32)>),
    /// Any devices.
    Any,
}

impl Form {
    /// The ways that can serve a pod on this machine, in their order. A pinned cell counts as any
    /// devices, since a claim that is pinned is never compared.
    pub(crate) fn seen_on(&self, machine: &Machine<'_>) -> Vec<Seen> {
        self.ways().filter_map(|way| self.seen(way, machine)).collect()
    }

    fn seen(&self, way: &Way, machine: &Machine<'_>) -> Option<Seen> {
        match way {
            Way::Attribute { name, only, .. } => {
                let only = only.as_ref().or(self.only.as_ref());
                let selects = !machine.cells_by_attribute(name).is_empty();
                (selects && is_listed(only, machine)).then_some(Seen::Attribute(name))
            }
            Way::Cell(cell) => {
                let (gpus, nics) = cell.on(machine);
                (!gpus.is_empty() && !nics.is_empty()).then_some(Seen::Cell(gpus, nics))
            }
            Way::Across(Across { gpus, nics }) => {
                let gpus = parts(gpus, |cell| cell.on(machine).0);
                let nics = parts(nics, |cell| cell.on(machine).1);
                let mut all = gpus.iter().chain(&nics);
                let is_possible = all.all(|(devices, count)| devices.len() >= *count as usize);
                is_possible.then_some(Seen::Across(gpus, nics))
            }
            Way::Pinned(_) | Way::Late(_) | Way::Any => {
                is_listed(self.only.as_ref(), machine).then_some(Seen::Any)
            }
        }
    }
}

impl CellWay {
    /// The GPUs and the NICs that the way selects on a machine.
    pub(crate) fn on(&self, machine: &Machine<'_>) -> (BTreeSet<PciAddress>, BTreeSet<PciAddress>) {
        let gpus = self.gpus.iter().copied();
        let gpus = gpus.filter(|gpu| machine.devices.gpus.contains_key(gpu));
        let places = self.places.iter();
        let places = places.filter(|place| !place.shapes.is_disjoint(&machine.shapes));
        let nics = places.flat_map(|place| &place.nics).copied();
        let nics = nics.filter(|nic| machine.devices.nics.contains_key(nic));
        (gpus.collect(), nics.collect())
    }
}

/// The devices of each part, and how many of them the claim takes.
fn parts(
    parts: &[(CellWay, u32)],
    devices: impl Fn(&CellWay) -> BTreeSet<PciAddress>,
) -> Vec<(BTreeSet<PciAddress>, u32)> {
    parts.iter().map(|(cell, count)| (devices(cell), *count)).collect()
}

/// Returns true if a claim that is limited to these shapes, if any, can serve the machine.
fn is_listed(only: Option<&Vec<ShapeHash>>, machine: &Machine<'_>) -> bool {
    only.is_none_or(|only| only.iter().any(|shape| machine.shapes.contains(shape)))
}
