//! The PCI tree in the manner of `lspci -t`, with NUMA nodes and links.

use std::fmt::Write;

use super::label;
use crate::graph::Vertex;
use crate::{Evidence, Topology};

/// The tree, roots in order.
pub(super) fn tree(topology: &Topology) -> String {
    let mut text = String::new();
    let roots: Vec<&Vertex> = topology.graph.tops().collect();
    for root in &roots {
        line(topology, root, "", &mut text);
        below(topology, root, "", &mut text);
    }
    if roots.is_empty() {
        text.push_str("no GPU and no NIC found\n");
    }
    text
}

fn below(topology: &Topology, vertex: &Vertex, indent: &str, text: &mut String) {
    let children = topology.graph.children(vertex.place);
    for (index, child) in children.iter().enumerate() {
        let last = index + 1 == children.len();
        let (branch, rest) = if last { ("\\-", "  ") } else { ("+-", "| ") };
        line(topology, child, &format!("{indent} {branch}"), text);
        below(topology, child, &format!("{indent} {rest}"), text);
    }
}

fn line(topology: &Topology, vertex: &Vertex, indent: &str, text: &mut String) {
    let numa = vertex.numa.map(|node| format!("numa {node}"));
    let link = vertex.max_link.map(|link| link.to_string());
    let evidence = Some(&vertex.evidence).filter(|evidence| **evidence != Evidence::Sysfs);
    let evidence = evidence.map(|evidence| format!("({evidence})"));
    let words = [Some(label(topology, vertex)), numa, link, evidence];
    let words: Vec<String> = words.into_iter().flatten().collect();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{indent}{}", words.join("  "));
}
