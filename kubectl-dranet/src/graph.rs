//! `graph`: how the devices of nodes, or of a machine, are connected.

use crate::args::{GraphArgs, MachineArgs};
use crate::{source, text};
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use std::fs::{self, File};
use std::path::Path;
use topology_graph::{Format, HostRoot, Identities, NcclXml, Overlay, Topology, capture};

pub(crate) async fn run(args: GraphArgs) -> anyhow::Result<String> {
    if let Some(out) = &args.capture {
        let identities = if args.mask { Identities::Masked } else { Identities::Kept };
        return write_capture(args.machine.root.as_deref(), identities, out);
    }
    if let Some(topology) = machine(&args.machine)? {
        return Ok(args.output.render(&topology));
    }
    let view = source::read(&args.source).await?;
    let Some(node) = &args.node else { return every_node(&view, args.output) };
    let object = view.node_topology(node).with_context(|| unknown_node(&view, node))?;
    Ok(args.output.render(&Topology::from_spec(&object.spec)?))
}

fn every_node(view: &ClusterView, output: Format) -> anyhow::Result<String> {
    anyhow::ensure!(output == Format::Matrix, "name the node whose graph to write as {output}");
    anyhow::ensure!(view.node_topologies().next().is_some(), "no node has published a graph");
    text::matrices(view)
}

/// The machine that the flags name, if they name one.
fn machine(args: &MachineArgs) -> anyhow::Result<Option<Topology>> {
    let overlay = match (&args.nccl_xml, &args.vm_size) {
        (Some(path), _) => Some(nccl_overlay(path)?),
        (None, Some(size)) => {
            Some(Overlay::built_in(size).with_context(|| format!("no overlay for size `{size}`"))?)
        }
        (None, None) => None,
    };
    let Some(root) = &args.root else {
        return Ok(overlay.map(|overlay| Topology::from_overlay(&overlay).0));
    };
    let snapshot = topology_graph::read(&host(root)?)?;
    Ok(Some(Topology::build(&snapshot, overlay.as_ref()).0))
}

/// A folder is a mounted root, a file an archive of one.
fn host(root: &Path) -> anyhow::Result<HostRoot> {
    if !root.is_file() {
        return Ok(HostRoot::at(root));
    }
    let bytes = fs::read(root).with_context(|| format!("failed to read `{}`", root.display()))?;
    HostRoot::in_archive(root, &bytes)
        .with_context(|| format!("failed to read the archive `{}`", root.display()))
}

fn nccl_overlay(path: &Path) -> anyhow::Result<Overlay> {
    let named = || format!("failed to read `{}`", path.display());
    let text = fs::read_to_string(path).with_context(named)?;
    Ok(Overlay::from_nccl_xml(&NcclXml::parse(&text).with_context(named)?))
}

fn write_capture(
    root: Option<&Path>,
    identities: Identities,
    out: &Path,
) -> anyhow::Result<String> {
    let host = host(root.unwrap_or_else(|| Path::new("/")))?;
    let named = || format!("failed to write `{}`", out.display());
    capture(&host, identities, File::create(out).with_context(named)?).with_context(named)?;
    Ok(format!("Captured to {}\n", out.display()))
}

fn unknown_node(view: &ClusterView, node: &str) -> String {
    let names: Vec<_> = view.node_topologies().map(|(name, _)| name).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("node `{node}` has published no graph; these have: {there}")
}
