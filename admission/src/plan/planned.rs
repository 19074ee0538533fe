//! What a plan says about each type of machine.

use crate::nearness::Nearness;
use cluster_model::machines::Machine;

/// The most nodes of a machine that a plan keeps, to name them.
const NODES_KEPT: usize = 3;

/// The most nodes that a text names.
const NAMED: usize = 3;

/// A distinct machine of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMachine {
    /// Some of its nodes, at least one.
    pub nodes: Vec<String>,
    /// The number of its present nodes; 0 for a machine that is only remembered.
    pub present: usize,
    /// Whether the plan serves it.
    pub is_served: bool,
    /// Whether it has enough devices that are as near as the pod requires, or, for preferred
    /// alignment, as near as a NUMA node or socket. False if no claim fits there.
    pub could: bool,
    /// True if no claim fits there even with nothing in use, although the graph has the devices.
    pub is_unfit: bool,
    /// The nearness that the plan guarantees there, or tries first. `None` if the plan does not
    /// serve the machine, or with any devices.
    pub nearness: Option<Nearness>,
}

/// Some nodes of a machine, at least one.
pub(super) fn some_nodes(machine: &Machine<'_>) -> Vec<String> {
    machine.nodes.iter().take(NODES_KEPT).map(|name| (*name).to_owned()).collect()
}

/// `on node a`, `on 3 nodes (a, b and others)`.
pub(crate) fn named(machines: &[&PlannedMachine]) -> String {
    let all: usize = machines.iter().map(|machine| machine.present).sum();
    let names: Vec<_> = machines
        .iter()
        .flat_map(|machine| &machine.nodes)
        .take(NAMED)
        .map(String::as_str)
        .collect();
    let others = if names.len() < all { " and others" } else { "" };
    match all {
        1 => format!("on node {}", names.join(", ")),
        all => format!("on {all} nodes ({}{others})", names.join(", ")),
    }
}
