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
use super::{Candidate, Question, cells, guarantee};
use crate::nearness::Nearness;
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
pub(super) fn propose(question: Question<'_>, levels: &[Option<Nearness>]) -> Vec<Candidate> {
    let attributes = attributes(question.driver).into_iter();
    attributes.filter_map(|known| candidate(question, levels, known)).collect()
}

fn candidate(
    question: Question<'_>,
    levels: &[Option<Nearness>],
    known: (&'static str, &'static str),
) -> Option<Candidate> {
    let (way, serves) = way(question, levels, known)?;
    let serves = fitting(question, levels, serves);
    serves.contains(&true).then(|| {
        let (nearness, levels) = guarantee(question, levels, &serves);
        Candidate {
            join: known.0,
            why: why(known.0, known.1),
            nearness,
            levels,
            demand: question.demand.clone(),
            form: Form { ways: vec![way], only: None, apart: Apart::Kind },
            serves,
            far_because: super::FAR,
            rungs: None,
        }
    })
}

/// Attributes where they are right, and cells on the other machines.
pub(super) fn mixed(
    question: Question<'_>,
    levels: &[Option<Nearness>],
    room: usize,
) -> Option<Candidate> {
    question.driver.kind_attribute?;
    let mut ways = Vec::new();
    let mut serves = vec![false; question.machines.len()];
    for known in attributes(question.driver) {
        let Some((way, found)) = way(question, levels, known) else { continue };
        let found = fitting(question, levels, found);
        let found: Vec<_> = question
            .machines
            .iter()
            .zip(found)
            .map(|(machine, found)| found && nics_are(machine, question))
            .collect();
        let is_new = found.iter().zip(&serves).any(|(found, served)| *found && !served);
        if is_new && ways.len() < room {
            ways.push(way);
            serves.iter_mut().zip(found).for_each(|(served, found)| *served |= found);
        }
    }
    let left: Vec<_> =
        levels.iter().zip(&serves).map(|(level, served)| level.filter(|_| !served)).collect();
    let collected = cells::collect(question, &left, Apart::Kind, room - ways.len());
    let by_cells = !collected.ways.is_empty();
    // With attributes or cells only, there is another candidate.
    if ways.is_empty() || (ways.len() == 1 && !by_cells) {
        return None;
    }
    let joins: BTreeSet<_> = ways
        .iter()
        .filter_map(|way| match way {
            Way::Attribute { name, .. } => Some(*name),
            Way::Cell(_) | Way::Pinned(_) | Way::Any => None,
        })
        .collect();
    let joins: Vec<_> = joins.into_iter().collect();
    ways.extend(collected.ways);
    serves.iter_mut().zip(collected.serves).for_each(|(served, found)| *served |= found);
    let (nearness, levels) = guarantee(question, levels, &serves);
    let cells = if by_cells { "; on the others the claim lists cells of the graph" } else { "" };
    Some(Candidate {
        join: "mixed",
        why: format!(
            "GPUs and NICs both publish {} on some machine types, where it agrees with the \
             graph{cells}",
            joins.join(" or ")
        ),
        nearness,
        levels,
        demand: question.demand.clone(),
        form: Form { ways, only: None, apart: Apart::Kind },
        serves,
        far_because: super::FAR,
        rungs: None,
    })
}

/// Which of these machines can serve the whole demand at their level.
fn fitting(
    question: Question<'_>,
    levels: &[Option<Nearness>],
    mut serves: Vec<bool>,
) -> Vec<bool> {
    for ((machine, level), serves) in question.machines.iter().zip(levels).zip(&mut serves) {
        *serves &= level.is_some_and(|level| question.demand.fits(&level.cells(machine)));
    }
    serves
}

/// The way to select by an attribute, and on which machines it finds exactly the devices that are
/// as near as their level. `None` if it does so on no machine. It is limited to known shapes if it
/// would tie devices that are not near on some machine, or if its name does not imply the nearness.
pub(super) fn way(
    question: Question<'_>,
    levels: &[Option<Nearness>],
    (join, name): (&'static str, &'static str),
) -> Option<(Way, Vec<bool>)> {
    let machines = || question.machines.iter().zip(levels);
    let agreements: Vec<_> = machines()
        .map(|(machine, level)| {
            agreement(
                machine,
                level.unwrap_or_else(|| Nearness::weakest(slice::from_ref(machine))),
                name,
            )
        })
        .collect();
    let wrong: BTreeSet<ShapeHash> = question
        .machines
        .iter()
        .zip(&agreements)
        .filter(|(_, found)| **found == Agreement::Wrong)
        .flat_map(|(machine, _)| machine.shapes.iter().copied())
        .collect();
    let right: Vec<usize> = machines()
        .zip(&agreements)
        .zip(0..)
        .filter(
            |(((machine, level), found), _): &(
                ((&Machine<'_>, &Option<Nearness>), &Agreement),
                usize,
            )| {
                level.is_some() && **found == Agreement::Exact && machine.shapes.is_disjoint(&wrong)
            },
        )
        .map(|(_, index)| index)
        .collect();
    let implied = right.iter().all(|index| levels[*index].is_some_and(|it| implies(join, it)));
    let only = !wrong.is_empty() || !implied;
    let serves: Vec<bool> = (0..question.machines.len())
        .map(|index| {
            right.contains(&index)
                && (!only || question.machines[index].nics_have(attribute::SHAPE))
        })
        .collect();
    let only = only.then(|| {
        right
            .iter()
            .flat_map(|index| &question.machines[*index].shapes)
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    });
    serves.contains(&true).then_some((Way::Attribute { join, name, only }, serves))
}

/// Whether all NICs of a machine have the kind attribute, which constraints between alternatives
/// need.
pub(super) fn nics_are(machine: &Machine<'_>, question: Question<'_>) -> bool {
    let mut nics = machine.devices.nics.values();
    question
        .driver
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
    let set = |addresses: &[PciAddress]| addresses.iter().copied().collect();
    cells.iter().map(|cell| (set(&cell.gpus), set(&cell.nics))).collect()
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
