//! The documented schema of a graph as JSON is that of what is printed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads the schema beside it")]

#[path = "../src/formats/json/document.rs"]
mod document;

use document::Document;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use topology_graph::fixture::{MACHINES, plant};
use topology_graph::{
    HostRoot, Level, NodeTopologySpec, PathKind, PciAddress, Topology, json, read,
};

#[test]
fn the_schema_is_documented() {
    let schema = schemars::schema_for!(Document);
    let expected = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let there = fs::read_to_string("../docs/reference/schemas/graph.json").unwrap_or_default();
    if there != expected {
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("graph.json");
        fs::write(&made, expected).unwrap();
        panic!("`docs/reference/schemas/graph.json` should be `{}`", made.display());
    }
}

/// The graph of every machine has the documented fields and no others.
#[test]
fn the_graphs_of_all_machines_match_it() {
    for (name, text) in MACHINES {
        let root = tempfile::tempdir().unwrap();
        plant(text, root.path()).unwrap();
        let topology = Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0;
        let document: Document = serde_json::from_str(&json(&topology)).unwrap();
        let paths = document.paths.iter();
        let devices: BTreeSet<PciAddress> = paths.flat_map(|path| [path.a, path.b]).collect();
        let devices = devices.len();
        assert_eq!(document.version, 1, "{name}");
        assert_eq!(document.topology, topology.to_spec(), "{name}");
        assert_eq!(document.paths.len(), devices * devices.saturating_sub(1) / 2, "{name}");
        assert_eq!(document.pairs.len(), topology.pairs().len(), "{name}");
        assert!(document.cells.iter().all(|cell| Level::ALL.contains(&cell.level)), "{name}");
    }
}
