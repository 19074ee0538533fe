//! What is published of every machine, as it was recorded: slices, NodeTopology, and what is withheld and why,
//! with each of the operator's settings.
//!
//! Snapshots of `attributes` hold the attributes of each NIC as text; this record holds every byte of the
//! objects.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../tests/recorded/record.rs"]
mod record;

use publication::cloud::CloudMetadata;
use publication::decision::{Decision, decide, decide_with};
use publication::health::Problem;
use publication::health::taint::TaintArgs;
use publication::judge::{BindNics, Rules};
use publication::live;
use publication::machine::{Facts, Machine, Usage};
use publication::network::NetworkFacts;
use publication::node::NodeIdentity;
use publication::rails::KnownRails;
use publication::sharing::{Sharing, SharingArgs};
use publication::slices::{self, Memory};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use topology_graph::{HostRoot, NodeTopology, fixture};

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

fn shared(sharing: Sharing, most: u32) -> SharingArgs {
    SharingArgs { sharing, rdma_hca_max: NonZeroU32::new(most), ..SharingArgs::default() }
}

/// The decision where every second NIC of the machine has problems.
fn tainted(facts: &Facts, rules: Rules) -> Decision {
    let all = decide(facts).nics.into_iter().step_by(2).map(|nic| nic.name);
    let all: BTreeSet<_> = all.collect();
    let mut machine = Machine::read(facts, &rules, &KnownRails::default());
    machine.settle(&Usage::default(), &rules);
    for nic in machine.nics.iter_mut().filter(|nic| all.contains(&nic.name)) {
        nic.now.problems =
            BTreeSet::from([Problem::PortDown, Problem::PortFlapping, Problem::LinkDegraded]);
    }
    let rules = Rules { taints: Some(TaintArgs::default()), ..rules };
    machine.decide(&rules, &BTreeMap::new())
}

/// The decision with each setting, as the driver makes it.
fn decisions(facts: &Facts) -> Vec<(&'static str, Decision)> {
    let filter = r#"attributes["dra.net/rdma"].BoolValue"#.parse().unwrap();
    let one = || Rules { one_function_per_port: true, ..Rules::default() };
    let with = |rules| decide_with(facts, &rules);
    let by = |sharing, most| with(Rules { sharing: shared(sharing, most), ..one() });
    vec![
        ("all", decide(facts)),
        ("one function of each port", with(one())),
        ("with something to give", with(Rules { something_to_give: true, ..one() })),
        ("filtered", with(Rules { filter, ..one() })),
        ("by bandwidth", by(Sharing::Bandwidth, 8)),
        ("by number", by(Sharing::Count, 4)),
        ("tainted", tainted(facts, one())),
        ("late", with(Rules { bind_nics: BindNics::Late, ..one() })),
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
    for (name, decision) in decisions(&facts) {
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
