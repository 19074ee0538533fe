//! The differences between two graphs, as text for people: hardware that was added, removed or
//! changed, changed names, and the effect on distances.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::{NodeTopologySpec, PciAddress, Topology};

/// One line per difference: `-` for what only the first graph has, `+` for what only the second
/// has. Empty if both are the same machine.
pub fn diff(before: &Topology, after: &Topology) -> String {
    let specs = [before, after].map(|topology| facts(&topology.to_spec()));
    let mut lines: Vec<String> = Vec::new();
    for (name, old) in &specs[0] {
        if specs[1].get(name) != Some(old) {
            lines.push(format!("- {name}{old}"));
        }
    }
    for (name, new) in &specs[1] {
        if specs[0].get(name) != Some(new) {
            lines.push(format!("+ {name}{new}"));
        }
    }
    // The old and the new line of one subject are adjacent.
    lines.sort_by(|a, b| a[2..].split(' ').next().cmp(&b[2..].split(' ').next()));
    lines.extend(paths(before, after));
    lines.iter().map(|line| line.clone() + "\n").collect()
}

/// Each fact by its subject.
fn facts(spec: &NodeTopologySpec) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for vertex in &spec.shape.vertices {
        facts.insert(vertex.at.clone(), words(vertex));
    }
    for node in &spec.shape.numa_nodes {
        facts.insert(format!("numa{}", node.node), words(node));
    }
    for socket in &spec.shape.sockets {
        facts.insert(format!("socket{}", socket.socket), words(socket));
    }
    for links in &spec.shape.gpu_links {
        facts.insert(format!("links:{}", links.gpus.join(",")), words(links));
    }
    for nic in &spec.nics {
        facts.insert(format!("nic:{}", nic.at), words(nic));
    }
    for memory in &spec.memory {
        facts.insert(format!("memory:{}", memory.node), words(memory));
    }
    for drive in &spec.storage {
        facts.insert(drive.at.clone(), words(drive));
    }
    if let Some(fabric) = &spec.fabric {
        facts.insert("fabric".to_owned(), format!(" {fabric}"));
    }
    for identity in &spec.identities {
        facts.insert(format!("identity:{}", identity.at), words(identity));
    }
    for anomaly in &spec.anomalies {
        facts.insert(format!("anomaly:{anomaly}"), String::new());
    }
    facts
}

/// The set fields of a value, with their names in the object.
fn words(value: &(impl serde::Serialize + Debug)) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(value) else {
        return format!(" {value:?}");
    };
    let said = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "at" | "node" | "gpus"));
    said.map(|(name, value)| format!(" {name}={value}")).collect::<Vec<_>>().concat()
}

/// Changed paths between devices that both graphs have.
fn paths(before: &Topology, after: &Topology) -> Vec<String> {
    let common: Vec<PciAddress> = (&devices(before) & &devices(after)).into_iter().collect();
    let mut lines = Vec::new();
    for (index, &a) in common.iter().enumerate() {
        for &b in &common[index + 1..] {
            let (old, new) = (before.path(a, b), after.path(a, b));
            if old != new {
                lines.push(format!("! {a} {b} {old} -> {new}"));
            }
        }
    }
    lines
}

fn devices(topology: &Topology) -> BTreeSet<PciAddress> {
    topology.ends().map(|(device, _)| device).collect()
}
