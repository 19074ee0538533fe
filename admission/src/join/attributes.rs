//! Joins by an attribute that GPUs and NICs have in common.
//!
//! *partner*: a NIC publishes, under the GPU driver's own attribute name, the UUID of the
//! GPU that the topology pairs it with. *root* and *numa*: the standard attributes. *numa
//! alias*: the GPU driver's own NUMA attribute, which the NIC publishes too.
//!
//! `matchAttribute` looks names up fully qualified, so the plain `uuid` of driver
//! `gpu.nvidia.com` and an explicit `gpu.nvidia.com/uuid` on a NIC are the same attribute
//! (`lookupAttribute` in `structured/internal/…/allocator_*.go`).
//!
//! Equal names are not enough: GPUs have been seen to publish the NUMA node of their own
//! memory. So a join is used on machines where "same value" and "near in the topology"
//! agree for every GPU and NIC. If a value would tie devices that are not near, the claim
//! excludes that machine shape. Each machine has its own level.

use super::form::{Apart, Form, Way};
use super::{Candidate, cells};
use crate::fleet::Fleet;
use crate::nearness::Nearness;
use crate::promise::{Levels, Nodes, Promises};
use cluster_model::gpu_drivers::{GpuDriver, NIC_KIND};
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use std::collections::BTreeSet;
use std::slice;
use topology_graph::{Cell, Level, PciAddress, ShapeHash};

/// How an attribute and the topology agree on a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Agreement {
    /// Devices have the same value exactly if they are near.
    Exact,
    /// Devices with the same value are near, but not all near devices have it.
    Partial,
    /// Some devices with the same value are not near.
    Wrong,
}

/// The driver's attributes that can join, with the names of the joins, best first.
pub(super) fn attributes(driver: &GpuDriver) -> Vec<(&'static str, &'static str)> {
    let partner = driver.uuid_attribute.map(|name| ("partner", name));
    let standard = [("root", attribute::PCIE_ROOT), ("numa", attribute::NUMA_NODE)];
    let alias = driver.numa_attribute.map(|name| ("numa-alias", name));
    partner.into_iter().chain(standard).chain(alias).collect()
}

/// One candidate for each attribute that is right on at least one machine, at the machine's level.
pub(super) fn propose<'m>(fleet: Fleet<'_, 'm>, levels: &Levels<'m>) -> Vec<Candidate<'m>> {
    let attributes = attributes(fleet.driver()).into_iter();
    attributes.filter_map(|known| candidate(fleet, levels, known)).collect()
}

fn candidate<'m>(
    fleet: Fleet<'_, 'm>,
    levels: &Levels<'m>,
    known: (&'static str, &'static str),
) -> Option<Candidate<'m>> {
    let (way, right) = way(fleet, levels, known)?;
    let promises = Promises::at(levels, &fitting(fleet, levels, &right));
    let form = Form::new(vec![way], Apart::Kind);
    Candidate::new(fleet, (known.0, why(known.0, known.1)), form, promises).if_any_served()
}

/// Attributes where they are right, and cells on the other machines.
pub(super) fn mixed<'m>(
    fleet: Fleet<'_, 'm>,
    levels: &Levels<'m>,
    room: usize,
) -> Option<Candidate<'m>> {
    fleet.driver().kind_attribute?;
    let mut ways = Vec::new();
    let mut joins = BTreeSet::new();
    let mut served = Nodes::new();
    let of_kind = fleet.machines.iter().filter(|machine| nics_are(machine, fleet));
    let of_kind: Nodes<'m> = of_kind.map(|machine| machine.devices.node).collect();
    for known in attributes(fleet.driver()) {
        let Some((way, right)) = way(fleet, levels, known) else { continue };
        let found = &fitting(fleet, levels, &right) & &of_kind;
        if !found.is_subset(&served) && ways.len() < room {
            ways.push(way);
            joins.insert(known.1);
            served.extend(found);
        }
    }
    let collected = cells::collect(fleet, &levels.without(&served), Apart::Kind, room - ways.len());
    let by_cells = !collected.ways.is_empty();
    // With attributes or cells only, there is another candidate.
    if ways.is_empty() || (ways.len() == 1 && !by_cells) {
        return None;
    }
    ways.extend(collected.ways);
    served.extend(collected.served);
    let joins: Vec<_> = joins.into_iter().collect();
    let cells = if by_cells { "; on the others the claim lists cells of the graph" } else { "" };
    let why = format!(
        "GPUs and NICs both publish {} on some machine types, where it agrees with the graph{cells}",
        joins.join(" or ")
    );
    let promises = Promises::at(levels, &served);
    Some(Candidate::new(fleet, ("mixed", why), Form::new(ways, Apart::Kind), promises))
}

/// Which of these machines can serve the whole demand at their level.
fn fitting<'m>(fleet: Fleet<'_, 'm>, levels: &Levels<'m>, of: &Nodes<'m>) -> Nodes<'m> {
    let machines = fleet.machines.iter().filter(|machine| {
        let level = levels.on(machine).filter(|_| of.contains(machine.devices.node));
        level.is_some_and(|level| fleet.demand().fits(&level.cells(machine)))
    });
    machines.map(|machine| machine.devices.node).collect()
}

/// The way to select by an attribute, and the machines on which it finds exactly the devices that are
/// as near as their level. `None` if it does so on no machine. It is limited to known shapes if it
/// would tie devices that are not near on some machine, or if its name does not imply the nearness.
pub(super) fn way<'m>(
    fleet: Fleet<'_, 'm>,
    levels: &Levels<'m>,
    (join, name): (&'static str, &'static str),
) -> Option<(Way, Nodes<'m>)> {
    let found = fleet.machines.iter().map(|machine| {
        let level = levels.on(machine);
        let or_weakest = level.unwrap_or_else(|| Nearness::weakest(slice::from_ref(machine)));
        (machine, level, agreement(machine, or_weakest, name))
    });
    let found: Vec<_> = found.collect();
    let wrong = found.iter().filter(|(.., agreement)| *agreement == Agreement::Wrong);
    let wrong: BTreeSet<ShapeHash> =
        wrong.flat_map(|(machine, ..)| machine.shapes.iter().copied()).collect();
    let right = found.into_iter().filter_map(|(machine, level, agreement)| {
        let is_right = agreement == Agreement::Exact && machine.shapes.is_disjoint(&wrong);
        Some((machine, level.filter(|_| is_right)?))
    });
    let right: Vec<(&Machine<'m>, Nearness)> = right.collect();
    let is_limited = !wrong.is_empty() || !right.iter().all(|(_, level)| implies(join, *level));
    let served = right.iter().map(|(machine, _)| *machine);
    let served = served.filter(|it| !is_limited || it.nics_have(attribute::SHAPE));
    let served: Nodes<'m> = served.map(|machine| machine.devices.node).collect();
    let only = is_limited.then(|| {
        let shapes = right.iter().flat_map(|(machine, _)| machine.shapes.iter().copied());
        shapes.collect::<BTreeSet<_>>().into_iter().collect()
    });
    (!served.is_empty()).then_some((Way::Attribute { join, name, only }, served))
}

/// Whether all NICs of a machine have the kind attribute, which constraints between alternatives
/// need.
pub(super) fn nics_are(machine: &Machine<'_>, fleet: Fleet<'_, '_>) -> bool {
    let mut nics = machine.devices.nics.values();
    fleet
        .driver()
        .kind_attribute
        .is_some_and(|kind| nics.all(|nic| text(nic, kind) == Some(NIC_KIND)))
}

/// Whether the join's name implies that devices are this near.
fn implies(join: &str, nearness: Nearness) -> bool {
    match nearness {
        Nearness::Partner => join == "partner",
        // A host bridge may have several root ports.
        Nearness::Level(Level::Switch | Level::RootPort | Level::Socket) => false,
        Nearness::Level(Level::Root) => join == "root",
        Nearness::Level(Level::Numa) => matches!(join, "numa" | "numa-alias"),
    }
}

fn agreement(machine: &Machine<'_>, nearness: Nearness, name: &str) -> Agreement {
    let near = sets(&nearness.cells(machine));
    let same = sets(&machine.cells_by_attribute(name));
    if near == same {
        return Agreement::Exact;
    }
    let is_inside = same.iter().all(|cell| {
        near.iter().any(|(gpus, nics)| cell.0.is_subset(gpus) && cell.1.is_subset(nics))
    });
    if is_inside { Agreement::Partial } else { Agreement::Wrong }
}

fn sets(cells: &[Cell]) -> BTreeSet<(BTreeSet<PciAddress>, BTreeSet<PciAddress>)> {
    let sets = cells
        .iter()
        .map(|cell| (cell.gpus.iter().copied().collect(), cell.nics.iter().copied().collect()));
    sets.collect()
}

fn why(join: &str, name: &str) -> String {
    match join {
        "partner" => format!(
            "each NIC carries the {name} of the GPU that the graph pairs it with, so one \
             constraint picks both"
        ),
        _ => format!(
            "GPUs and NICs both publish {name}, and it agrees with the graph on these nodes"
        ),
    }
}
