//! What the cluster has, in words, where it is not enough.

use crate::intent::Intent;
use cluster_model::node_devices::NodeDevices;
use std::collections::BTreeMap;
use topology_graph::{Cell, Level, ShapeHash};

/// Shapes that a denial spells out; a cluster of many would fill a screen.
const SHAPES_SHOWN: usize = 4;

/// `1 GPU + 2 NICs`.
pub(crate) fn demand(gpus: u32, nics: u32) -> String {
    format!("{} + {}", count(gpus as usize, "GPU"), count(nics as usize, "NIC"))
}

/// Why no node shape can serve, with the largest cells that there are.
pub(crate) fn shortage(intent: &Intent, nodes: &[NodeDevices<'_>]) -> String {
    let asked = format!(
        "asks {} on one NUMA node with {}",
        count(intent.nics as usize, "NIC"),
        count(intent.gpus as usize, "GPU")
    );
    let mut shapes: BTreeMap<ShapeHash, (usize, Vec<Cell>)> = BTreeMap::new();
    for node in nodes {
        let entry =
            shapes.entry(node.topology.shape()).or_insert_with(|| (0, node.cells(Level::Numa)));
        entry.0 += 1;
    }
    let cells = || shapes.values().flat_map(|(_, cells)| cells);
    let with_gpus = || cells().filter(|cell| cell.gpus.len() >= intent.gpus as usize);
    let most_nics = with_gpus().map(|cell| cell.nics.len()).max();
    let most_gpus = cells().map(|cell| cell.gpus.len()).max().unwrap_or_default();
    let limit = match most_nics {
        Some(nics) if nics < intent.nics as usize => {
            format!("no node shape here has more than {nics}")
        }
        Some(_) => "no attribute of the published devices lets a claim say so".to_owned(),
        None => format!("no NUMA node here has more than {}", count(most_gpus, "GPU")),
    };
    format!("{asked}; {limit} ({})", describe(&shapes))
}

fn describe(shapes: &BTreeMap<ShapeHash, (usize, Vec<Cell>)>) -> String {
    let mut texts: Vec<_> = shapes.iter().take(SHAPES_SHOWN).map(describe_shape).collect();
    if shapes.len() > SHAPES_SHOWN {
        texts.push(format!("and {} more shapes", shapes.len() - SHAPES_SHOWN));
    }
    texts.join("; ")
}

fn describe_shape((hash, (nodes, cells)): (&ShapeHash, &(usize, Vec<Cell>))) -> String {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| {
            let (gpus, nics) = (count(cell.gpus.len(), "GPU"), count(cell.nics.len(), "NIC"));
            format!("{} has {gpus} and {nics}", cell.key)
        })
        .collect();
    format!("{} of shape {hash}: {}", count(*nodes, "node"), cells.join(", "))
}

/// `1 NIC`, `2 NICs`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
