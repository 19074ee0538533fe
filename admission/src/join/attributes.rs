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
//! excludes that machine shape.

use super::form::{Apart, Form, Way};
use super::{Candidate, Question};
use crate::nearness::Nearness;
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use std::collections::BTreeSet;
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

/// One candidate for each attribute that is right on at least one machine.
pub(super) fn propose(question: Question<'_>, nearness: Nearness) -> Vec<Candidate> {
    let attributes = attributes(question.driver).into_iter();
    attributes.filter_map(|(join, name)| candidate(question, nearness, join, name)).collect()
}

fn candidate(
    question: Question<'_>,
    nearness: Nearness,
    join: &'static str,
    name: &'static str,
) -> Option<Candidate> {
    let Question { demand, machines, .. } = question;
    let agreements: Vec<_> =
        machines.iter().map(|machine| agreement(machine, nearness, name)).collect();
    let shapes = |wanted: &dyn Fn(Agreement) -> bool| -> BTreeSet<ShapeHash> {
        let machines = machines.iter().zip(&agreements).filter(|(_, found)| wanted(**found));
        machines.map(|(machine, _)| machine.shape()).collect()
    };
    let wrong = shapes(&|found| found == Agreement::Wrong);
    let right = shapes(&|found| found == Agreement::Exact);
    // On future machines the attribute means what its name says. Anything beyond that
    // holds only for the known machines.
    let only = !wrong.is_empty() || !implies(join, nearness);
    let serves: Vec<_> = machines
        .iter()
        .zip(&agreements)
        .map(|(machine, found)| {
            *found == Agreement::Exact
                && !wrong.contains(&machine.shape())
                && (!only || machine.nics_have(attribute::SHAPE))
                && demand.fits(&nearness.cells(machine))
        })
        .collect();
    let only = only.then(|| right.difference(&wrong).copied().collect());
    serves.contains(&true).then(|| Candidate {
        join,
        why: why(join, name),
        nearness,
        demand: demand.clone(),
        form: Form {
            ways: vec![Way::Attribute { join, name, only: None }],
            only,
            apart: Apart::Kind,
        },
        serves,
    })
}

/// The way to select by an attribute, if it agrees with the topology on every machine
/// that could serve. If other machines exist too, or the name alone does not imply the
/// nearness, it is limited to the shapes on which it agrees.
pub(super) fn way(
    question: Question<'_>,
    nearness: Nearness,
    (join, name): (&'static str, &'static str),
) -> Option<Way> {
    let exact = |machine: &&Machine<'_>| agreement(machine, nearness, name) == Agreement::Exact;
    let (right, other): (Vec<_>, Vec<_>) = question.machines.iter().partition(exact);
    let could = |machine: &&Machine<'_>| {
        nearness.cells(machine).iter().any(|cell| question.demand.capacity(cell) > 0)
    };
    let shapes: BTreeSet<_> = right.iter().map(|machine| machine.shape()).collect();
    let unlike = other.iter().all(|machine| !shapes.contains(&machine.shape()));
    if !right.iter().any(could) || other.iter().any(could) || !unlike {
        return None;
    }
    let only = !other.is_empty() || !implies(join, nearness);
    let only = only.then(|| shapes.into_iter().collect());
    Some(Way::Attribute { join, name, only })
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
    let inside = |cell: &(BTreeSet<PciAddress>, BTreeSet<PciAddress>)| {
        near.iter().any(|(gpus, nics)| cell.0.is_subset(gpus) && cell.1.is_subset(nics))
    };
    if near == same {
        Agreement::Exact
    } else if same.iter().all(inside) {
        Agreement::Partial
    } else {
        Agreement::Wrong
    }
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
