//! The graph as a Mermaid flowchart, which Markdown viewers draw.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{half_label, halves, label};
use crate::Topology;
use crate::graph::{Place, Role};

pub(super) fn mermaid(topology: &Topology) -> String {
    let mut text = "flowchart TD\n".to_owned();
    let ids: BTreeMap<Place, String> = topology
        .graph
        .pci()
        .enumerate()
        .map(|(index, vertex)| (vertex.place, format!("v{index}")))
        .collect();
    for (index, (node, vertices)) in halves(topology).into_iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  subgraph n{index} [\"{}\"]", half_label(node));
        for vertex in vertices {
            let label = escape(&label(topology, vertex));
            let (open, close) = match vertex.role {
                Role::Gpu | Role::Nic | Role::Nvme => ("[", "]"),
                Role::HostBridge => ("([", "])"),
                _ => ("(", ")"),
            };
            let _ = writeln!(text, "    {}{open}\"{label}\"{close}", ids[&vertex.place]);
        }
        text.push_str("  end\n");
    }
    edges(topology, &ids, &mut text);
    text
}

fn edges(topology: &Topology, ids: &BTreeMap<Place, String>, text: &mut String) {
    let mut edge = |a: Place, edge: String, b: Place| {
        if let (Some(a), Some(b)) = (ids.get(&a), ids.get(&b)) {
            let _ = writeln!(text, "  {a} {edge} {b}");
        }
    };
    for vertex in topology.graph.pci() {
        if let Some(parent) = topology.graph.parent(vertex.place) {
            edge(parent.place, "---".to_owned(), vertex.place);
        }
    }
    for link in topology.graph.gpu_links() {
        let (a, b) = link.gpus;
        edge(Place::Function(a), format!("-. {} .-", link.fabric.path()), Place::Function(b));
    }
    for pair in topology.pairs() {
        let label = format!("== {} ===", pair.path);
        edge(Place::Function(pair.gpu), label, Place::Function(pair.nic));
    }
}

/// Mermaid's entities are HTML's with `#` for `&`.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        match character {
            '"' | '#' | '<' | '>' | '&' => {
                let _ = write!(escaped, "#{};", u32::from(character));
            }
            character => escaped.push(character),
        }
    }
    escaped
}
