//! The graph as a Mermaid flowchart, which Markdown viewers draw.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::gpu_links::mesh_label;
use super::{half_label, halves, label};
use crate::Topology;
use crate::graph::{Mesh, Place, Role};

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
    let tree = topology.graph.pci().filter_map(|vertex| {
        let parent = topology.graph.parent(vertex.place)?;
        Some((parent.place, "---".to_owned(), vertex.place))
    });
    let pairs = topology.pairs().into_iter().map(|pair| {
        let edge = format!("== {} ===", pair.path);
        (Place::Function(pair.gpu), edge, Place::Function(pair.nic))
    });
    for (a, edge, b) in tree.chain(pairs) {
        if let (Some(a), Some(b)) = (ids.get(&a), ids.get(&b)) {
            let _ = writeln!(text, "  {a} {edge} {b}");
        }
    }
    for (index, mesh) in topology.graph.meshes().iter().enumerate() {
        let gpus = mesh.gpus.iter().copied().map(Place::Function);
        let gpus: Vec<&String> = gpus.filter_map(|gpu| ids.get(&gpu)).collect();
        gpu_links(mesh, &gpus, index, text);
    }
}

/// A mesh of more than two GPUs is a box with an edge to each GPU; two GPUs get an edge.
fn gpu_links(mesh: &Mesh, gpus: &[&String], index: usize, text: &mut String) {
    let path = mesh.fabric.path();
    if let [a, b] = gpus {
        let _ = writeln!(text, "  {a} -. {path} .- {b}");
        return;
    }
    let _ = writeln!(text, "  m{index}{{{{\"{}\"}}}}", escape(&mesh_label(mesh)));
    for gpu in gpus {
        let _ = writeln!(text, "  m{index} -.- {gpu}");
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
