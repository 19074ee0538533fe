//! The cells join: no attribute says where both a GPU and a NIC are, so every
//! cell of the graph (here a NUMA node) is an alternative of its own.
//!
//! `nics` and `gpus` are each `firstAvailable` over the cells. For each cell i
//! one constraint names `nics/ci` and `gpus/cj` for all j ≠ i, on an attribute
//! that is equal within a kind and never between kinds; so those two can never
//! be chosen together, and what is left is "the same cell". Plain counts keep
//! the search short.

use super::{Candidate, Classes, Question};
use crate::claim::{Demand, exactly, first_available, match_attribute, tier};
use crate::intent::Intent;
use crate::selector::Selector;
use crate::supply::count;
use cluster_model::gpu_drivers::NIC_KIND;
use cluster_model::names::{self, attribute};
use cluster_model::node_devices::{NodeDevices, is_true, text};
use k8s_openapi::api::resource::v1::{DeviceConstraint, DeviceRequest};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology_graph::{Cell, Level, PciAddress, ShapeHash};

/// Alternatives of one request (`FirstAvailableDeviceRequestMaxSize`).
const ALTERNATIVES_MAX: usize = 8;

const GPUS: &str = "gpus";
const NICS: &str = "nics";

/// A cell of the nodes of one shape.
#[derive(Clone, Debug)]
struct Alternative {
    shape: ShapeHash,
    gpus: Vec<PciAddress>,
    nics: Vec<PciAddress>,
}

/// All GPUs and all NICs from one NUMA node, where some node has one that large.
pub(super) fn propose(question: Question<'_>) -> Option<Candidate> {
    let Question { intent, classes, nodes } = question;
    let alternatives = alternatives(intent, nodes);
    let (requests, constraints) = match alternatives.as_slice() {
        [] => return None,
        [only] => single(intent, classes, only),
        several => tiers(intent, classes, several),
    };
    Some(Candidate {
        join: "cells",
        why: format!(
            "{} and {} publish no common attribute that says which NUMA node a device is on, so \
             the claim lists the NUMA nodes of the graph that are large enough: {} on {} of node",
            intent.gpu_driver.driver,
            names::DRIVER,
            alternatives.len(),
            count(shapes(&alternatives).len(), "shape")
        ),
        requests,
        constraints,
        nic_requests: vec![NICS.to_owned()],
        selectable_nics: nodes.iter().map(|node| selectable(node, intent, &alternatives)).collect(),
    })
}

/// The cells that can serve, by shape; the shapes with most nodes where not
/// all fit into one request.
fn alternatives(intent: &Intent, nodes: &[NodeDevices<'_>]) -> Vec<Alternative> {
    let mut by_shape: BTreeMap<ShapeHash, (usize, Vec<Alternative>)> = BTreeMap::new();
    for node in nodes {
        let (count, known) = by_shape.entry(node.topology.shape()).or_default();
        let served: Vec<_> = serving(node, intent).collect();
        *count += usize::from(!served.is_empty());
        for Cell { gpus, nics, .. } in served {
            match known.iter_mut().find(|cell| overlap(&cell.nics, &nics)) {
                Some(cell) => {
                    extend(&mut cell.gpus, gpus);
                    extend(&mut cell.nics, nics);
                }
                None => known.push(Alternative { shape: node.topology.shape(), gpus, nics }),
            }
        }
    }
    let mut shapes: Vec<_> = by_shape.into_values().collect();
    shapes.sort_by_key(|(count, _)| Reverse(*count));
    let mut alternatives = Vec::new();
    for (_, cells) in shapes {
        if alternatives.len() + cells.len() <= ALTERNATIVES_MAX {
            alternatives.extend(cells);
        }
    }
    alternatives
}

/// The cells of a node that have enough GPUs and RDMA NICs, with the attribute
/// that tells the kinds apart on each of them.
fn serving(node: &NodeDevices<'_>, intent: &Intent) -> impl Iterator<Item = Cell> {
    let kind = intent.gpu_driver.kind_attribute;
    node.cells(Level::Numa)
        .into_iter()
        .map(move |mut cell| {
            cell.nics.retain(|nic| {
                let nic = node.nics[nic];
                is_true(nic, attribute::dranet::RDMA) && text(nic, kind) == Some(NIC_KIND)
            });
            cell
        })
        .filter(|cell| {
            cell.gpus.len() >= intent.gpus as usize && cell.nics.len() >= intent.nics as usize
        })
}

/// One cell on one shape: plain counts, nothing to keep apart.
fn single(
    intent: &Intent,
    classes: &Classes,
    cell: &Alternative,
) -> (Vec<DeviceRequest>, Vec<DeviceConstraint>) {
    let requests = vec![
        exactly(NICS, nic_demand(intent, classes, cell)),
        exactly(GPUS, gpu_demand(intent, classes, cell)),
    ];
    (requests, Vec::new())
}

fn tiers(
    intent: &Intent,
    classes: &Classes,
    cells: &[Alternative],
) -> (Vec<DeviceRequest>, Vec<DeviceConstraint>) {
    let requests = vec![
        first_available(NICS, cells.iter().map(|cell| nic_demand(intent, classes, cell))),
        first_available(GPUS, cells.iter().map(|cell| gpu_demand(intent, classes, cell))),
    ];
    let others = |i: usize| (0..cells.len()).filter(move |j| *j != i);
    let constraints = (0..cells.len()).map(|i| {
        let nic = format!("{NICS}/{}", tier(i));
        let gpus = others(i).map(|j| format!("{GPUS}/{}", tier(j)));
        match_attribute([nic].into_iter().chain(gpus).collect(), intent.gpu_driver.kind_attribute)
    });
    (requests, constraints.collect())
}

fn nic_demand<'a>(intent: &Intent, classes: &'a Classes, cell: &Alternative) -> Demand<'a> {
    let addresses = texts(&cell.nics);
    Demand {
        class: &classes.nic,
        count: intent.nics,
        // Bus ids mean different cells on different shapes; the NIC knows its own.
        selector: Selector::driver(names::DRIVER)
            .and_string(attribute::SHAPE, &cell.shape.to_string())
            .and_one_of(attribute::PCI_BUS_ID, addresses.iter().map(String::as_str)),
    }
}

fn gpu_demand<'a>(intent: &Intent, classes: &'a Classes, cell: &Alternative) -> Demand<'a> {
    let addresses = texts(&cell.gpus);
    Demand {
        class: &classes.gpu,
        count: intent.gpus,
        selector: Selector::driver(intent.gpu_driver.driver)
            .and_string(intent.gpu_driver.kind_attribute, intent.gpu_driver.gpu_kind)
            .and_one_of(attribute::PCI_BUS_ID, addresses.iter().map(String::as_str)),
    }
}

/// The NICs of the node that are in an alternative which the node can serve.
fn selectable(
    node: &NodeDevices<'_>,
    intent: &Intent,
    alternatives: &[Alternative],
) -> Vec<PciAddress> {
    let listed = |cell: &Cell| {
        alternatives
            .iter()
            .any(|known| known.shape == node.topology.shape() && overlap(&known.nics, &cell.nics))
    };
    serving(node, intent).filter(listed).flat_map(|cell| cell.nics).collect()
}

fn shapes(alternatives: &[Alternative]) -> Vec<ShapeHash> {
    let mut shapes: Vec<_> = alternatives.iter().map(|cell| cell.shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

fn texts(addresses: &[PciAddress]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

fn overlap(one: &[PciAddress], other: &[PciAddress]) -> bool {
    one.iter().any(|address| other.contains(address))
}

fn extend(known: &mut Vec<PciAddress>, more: Vec<PciAddress>) {
    known.extend(more);
    known.sort_unstable();
    known.dedup();
}
