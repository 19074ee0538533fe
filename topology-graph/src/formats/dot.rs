//! The graph for Graphviz: a box for each NUMA node, PCI edges plain, links
//! between GPUs dashed, and the pair plan bold.

use std::fmt::Write;

use super::{half_label, halves, label};
use crate::Topology;
use crate::shape::{Role, Vertex};

pub(super) fn dot(topology: &Topology) -> String {
    let mut text = "graph topology {\n  node [shape=box, fontname=\"sans-serif\"];\n".to_owned();
    for (index, (node, vertices)) in halves(topology).into_iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  subgraph cluster_{index} {{\n    label={};",
            quote(&half_label(node))
        );
        for vertex in vertices {
            let (name, label) = (quote(&vertex.place.to_string()), quote(&label(topology, vertex)));
            let _ = writeln!(text, "    {name} [label={label}, {}];", style(vertex));
        }
        text.push_str("  }\n");
    }
    edges(topology, &mut text);
    text.push_str("}\n");
    text
}

fn edges(topology: &Topology, text: &mut String) {
    for vertex in topology.vertices() {
        if let Some(parent) = vertex.parent {
            let _ = writeln!(text, "  \"{parent}\" -- \"{}\";", vertex.place);
        }
    }
    for link in &topology.shape.gpu_links {
        let ((a, b), path) = (link.gpus, link.fabric.path());
        let _ = writeln!(
            text,
            "  \"{a}\" -- \"{b}\" [style=dashed, label=\"{path}\", constraint=false];"
        );
    }
    for pair in topology.pairs() {
        let ends = format!("\"{}\" -- \"{}\"", pair.gpu, pair.nic);
        let _ = writeln!(text, "  {ends} [style=bold, label=\"{}\", constraint=false];", pair.path);
    }
}

fn style(vertex: &Vertex) -> &'static str {
    match vertex.role {
        Role::Gpu => "style=filled, fillcolor=\"#b8e0b8\"",
        Role::Nic => "style=filled, fillcolor=\"#b8d0f0\"",
        Role::Nvme => "style=filled, fillcolor=\"#e8e0c8\"",
        Role::HostBridge => "shape=oval",
        Role::Bridge | Role::Switch | Role::DataPath => "style=rounded",
    }
}

fn quote(text: &str) -> String {
    let escaped: String = text.chars().filter(|character| !character.is_control()).collect();
    format!("\"{}\"", escaped.replace('\\', "\\\\").replace('"', "\\\""))
}
