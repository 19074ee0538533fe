//! `graph`: how the devices of nodes are connected.

use crate::args::{GraphArgs, GraphFormat};
use crate::{source, text};
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use std::path::Path;
use topology_graph::{HostRoot, NodeTopologySpec, Overlay, Topology, matrix};

pub(crate) async fn run(args: GraphArgs) -> anyhow::Result<String> {
    if let Some(root) = &args.root {
        let topology = machine(root, args.vm_size.as_deref())?;
        return match args.output {
            GraphFormat::Matrix => Ok(matrix(&topology)),
            form => spec(&topology.to_spec(), form),
        };
    }
    let view = source::read(&args.source).await?;
    let Some(node) = &args.node else {
        anyhow::ensure!(
            args.output == GraphFormat::Matrix,
            "name the node whose graph to write as {}",
            if args.output == GraphFormat::Json { "json" } else { "yaml" }
        );
        anyhow::ensure!(view.node_topologies().next().is_some(), "no node has published a graph");
        return text::matrices(&view);
    };
    let object = view.node_topology(node).with_context(|| unknown_node(&view, node))?;
    match args.output {
        GraphFormat::Matrix => Ok(matrix(&Topology::from_spec(&object.spec)?)),
        form => spec(&object.spec, form),
    }
}

/// The machine below a root; what the reader found odd goes to standard error
/// through the log.
fn machine(root: &Path, vm_size: Option<&str>) -> anyhow::Result<Topology> {
    let snapshot = topology_graph::read(&HostRoot::at(root))?;
    let overlay = match vm_size {
        None => None,
        Some(size) => {
            Some(Overlay::built_in(size).with_context(|| format!("no overlay for size `{size}`"))?)
        }
    };
    let (topology, _) = Topology::build(&snapshot, overlay.as_ref());
    Ok(topology)
}

fn spec(spec: &NodeTopologySpec, form: GraphFormat) -> anyhow::Result<String> {
    match form {
        GraphFormat::Json => Ok(serde_json::to_string_pretty(spec)? + "\n"),
        GraphFormat::Yaml | GraphFormat::Matrix => text::yaml(spec),
    }
}

fn unknown_node(view: &ClusterView, node: &str) -> String {
    let names: Vec<_> = view.node_topologies().map(|(name, _)| name).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("node `{node}` has published no graph; these have: {there}")
}
