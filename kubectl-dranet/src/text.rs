//! Text that several commands print.

use anyhow::Context as _;
use cluster_model::view::ClusterView;
use serde::Serialize;
use std::collections::BTreeMap;
use topology_graph::{MatrixOptions, NodeTopology, ShapeHash, Topology, matrix_with};

/// A value as a YAML document.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    serde_saphyr::to_string(value).context("failed to write YAML")
}

/// The matrix of each shape of node, with the nodes that have it.
pub(crate) fn matrices(view: &ClusterView, options: MatrixOptions) -> anyhow::Result<String> {
    let mut shapes: BTreeMap<ShapeHash, Vec<&NodeTopology>> = BTreeMap::new();
    let there = view.node_topologies().filter(|(name, _)| !view.is_remembered(name));
    for (name, object) in there {
        let shape = view.topology(name).context("a node's graph is indexed with it")?.shape();
        shapes.entry(shape).or_default().push(object);
    }
    let blocks: anyhow::Result<Vec<_>> =
        shapes.iter().map(|(shape, nodes)| shape_block(*shape, nodes, options)).collect();
    Ok(blocks?.join("\n"))
}

/// One shape: its nodes, and the matrix with the names of the first.
fn shape_block(
    shape: ShapeHash,
    nodes: &[&NodeTopology],
    options: MatrixOptions,
) -> anyhow::Result<String> {
    let names: Vec<_> =
        nodes.iter().map(|node| node.metadata.name.as_deref().unwrap_or_default()).collect();
    let first = nodes.first().context("a shape has a node")?;
    let topology = Topology::from_spec(&first.spec)?;
    let heading = match names.as_slice() {
        [name] => format!("Node {name} (shape {shape})"),
        names => format!("{} nodes of shape {shape}: {}", names.len(), names.join(", ")),
    };
    Ok(format!("{heading}\n\n{}", matrix_with(&topology, options)))
}
