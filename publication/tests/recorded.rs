//! What is published of every machine, as it was recorded: slices, NodeTopology, and what is withheld and why,
//! with each of the operator's settings.
//!
//! Snapshots of `attributes` hold the attributes of each NIC as text; this record holds every byte of the
//! objects.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../tests/recorded/record.rs"]
mod record;

use publication::cloud::CloudMetadata;
use publication::decision::{Decision, Facts, decide};
use publication::filter::Filter;
use publication::health::taint::TaintArgs;
use publication::health::{Problem, Problems};
use publication::held::Held;
use publication::live;
use publication::network::NetworkFacts;
use publication::node::NodeIdentity;
use publication::sharing::{Sharing, SharingArgs};
use publication::slices::{self, Memory};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use topology_graph::{HostRoot, NodeTopology, Snapshot, fixture};

/// The machines: those without network and cloud, those that were seen live, and some with virtual functions.
fn facts(machine: &str) -> Facts {
    if let Some(name) = machine.strip_suffix(" live") {
        return live::facts(name);
    }
    let (name, variant) = machine.split_once('+').unwrap_or((machine, ""));
    let root = tempfile::tempdir().unwrap();
    fixture::plant(fixture::machine(name).unwrap(), root.path()).unwrap();
    let snapshot = topology_graph::read(&HostRoot::at(root.path())).unwrap();
    let snapshot = match variant {
        "vfs" => fixture::with_virtual_functions(snapshot, 2),
        _ => snapshot,
    };
    Facts {
        snapshot,
        network: NetworkFacts::default(),
        cloud: CloudMetadata::default(),
        rails: None,
    }
}

/// Every second NIC has these problems.
fn problems(decision: &Decision) -> Problems {
    let all = BTreeSet::from([Problem::PortDown, Problem::PortFlapping, Problem::LinkDegraded]);
    let names = decision.devices.iter().step_by(2).map(|device| device.name.clone());
    names.map(|name| (name, all.clone())).collect()
}

fn shared(sharing: Sharing, most: u32) -> SharingArgs {
    SharingArgs { sharing, rdma_hca_max: NonZeroU32::new(most), ..SharingArgs::default() }
}

/// The decision with each setting, as the driver makes it.
fn decisions(decision: &Decision, snapshot: &Snapshot) -> Vec<(&'static str, Decision)> {
    let filter: Filter = r#"attributes["dra.net/rdma"].BoolValue"#.parse().unwrap();
    let one = || decision.clone().one_function_per_port(snapshot, &Held::default());
    let (late, _) = one().bound_late(&BTreeMap::new(), &BTreeSet::new());
    vec![
        ("all", decision.clone()),
        ("one function of each port", one()),
        ("with something to give", one().with_something_to_give(snapshot, &Held::default())),
        ("filtered", one().filtered(&filter)),
        ("by bandwidth", one().shared(&shared(Sharing::Bandwidth, 8))),
        ("by number", one().shared(&shared(Sharing::Count, 4))),
        ("tainted", one().tainted(&problems(decision), TaintArgs::default())),
        ("late", late),
    ]
}

fn published(machine: &str) -> String {
    let facts = facts(machine);
    let decided = decide(&facts);
    let node = NodeIdentity { name: "node".into(), uid: "u".into(), labels: BTreeMap::new() };
    let mut text = String::new();
    for anomaly in &decided.anomalies {
        writeln!(text, "anomaly: {anomaly}").unwrap();
    }
    for (name, decision) in decisions(&decided, &facts.snapshot) {
        let slices = slices::plan(&node, &decision.devices, &[], &Memory::default()).create;
        let topology = NodeTopology::new("node", decision.topology);
        writeln!(text, "{name}: {}", json!({ "slices": slices, "topology": topology })).unwrap();
        for nic in &decision.withheld {
            writeln!(text, "withheld: {}", json!(nic)).unwrap();
        }
    }
    text
}

#[test]
fn slices_and_topology_of_every_machine() {
    let mut machines: Vec<String> =
        fixture::MACHINES.iter().map(|(name, _)| (*name).to_owned()).collect();
    machines.extend(live::MACHINES.map(|name| format!("{name} live")));
    machines.extend(["dgx-h100+vfs", "x86-one-per-switch+vfs"].map(str::to_owned));
    record::compare("published", &machines, |machine| published(machine));
}
