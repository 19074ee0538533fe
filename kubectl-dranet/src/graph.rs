//! `graph`: how the devices of nodes, or of a machine, are connected.

mod shapes;

use crate::args::{GraphArgs, LookArgs, MachineArgs};
use crate::source::{self, ReadCluster, Source};
use crate::{Output, text as tables};
use anyhow::Context as _;
use cluster_model::drivers::accelerators;
use cluster_model::snapshot::private;
use cluster_model::view::ClusterView;
use posted::{PostedMatrix, listing};
use std::fs;
use std::path::Path;
use topology_graph::{
    Fold, Format, HostRoot, Identities, MatrixOptions, NcclXml, Overlay, Theme, Topology, capture,
    diff, from_json, matrix_with, route, svg,
};

/// The start of a graph in JSON; no archive starts with it.
const GRAPH: &[u8] = b"{";

pub(crate) fn run(args: &GraphArgs) -> anyhow::Result<Output> {
    let mut notes = unknown_size(&args.machine).into_iter().collect();
    let text = graph(args, &mut notes)?;
    Ok(Output { notes, ..Output::from(text) })
}

fn graph(args: &GraphArgs, notes: &mut Vec<String>) -> anyhow::Result<String> {
    check(args.output, args.look)?;
    if let Some(out) = &args.capture {
        let identities = if args.mask { Identities::Masked } else { Identities::Kept };
        return write_capture(args.machine.root.as_deref(), identities, out);
    }
    if let Some(topology) = machine(&args.machine)? {
        if let Some(file) = &args.compare {
            return compared(&topology, file);
        }
        return match &args.diff {
            Some(other) => Ok(differences(&topology, &read(other.as_ref(), None)?)),
            None => shown(&topology, args),
        };
    }
    let ReadCluster { view, notes: unread, .. } =
        Source::open(&args.source)?.read(&source::of_view(), &[])?;
    notes.extend(unread);
    if let Some(file) = &args.compare {
        let node = args.node.as_ref();
        let node = node.context("name the node or the machine (--root) to compare with")?;
        return compared(&of_node(&view, node)?, file);
    }
    match (&args.node, &args.diff) {
        (Some(node), Some(other)) => {
            Ok(differences(&of_node(&view, node)?, &of_node(&view, other)?))
        }
        (Some(node), None) => shown(&of_node(&view, node)?, args),
        (None, Some(_)) => anyhow::bail!("name the node or the machine (--root) to compare with"),
        (None, None) => every_shape(&view, args),
    }
}

/// Shows every shape of the cluster's nodes; if there is only one, as for a named node.
fn every_shape(view: &ClusterView, args: &GraphArgs) -> anyhow::Result<String> {
    let by_shape = tables::shapes(view)?;
    let firsts: Vec<_> = by_shape.values().filter_map(|nodes| nodes.first()).collect();
    match (firsts.as_slice(), args.output) {
        ([], _) => anyhow::bail!("no node has published a graph"),
        (_, Format::Matrix) if args.path.is_none() => {
            tables::matrices(view, matrix_options(args.look))
        }
        ([only], _) => shown(&Topology::from_spec(&only.spec)?, args),
        (_, Format::Json) if args.path.is_none() => shapes::json(&by_shape),
        (_, Format::Svg) if args.path.is_none() => shapes::pictures(&by_shape, args.look.theme),
        (nodes, _) => {
            let names = nodes.iter().filter_map(|node| node.metadata.name.as_deref());
            let names: Vec<_> = names.collect();
            anyhow::bail!(
                "the nodes have {} different shapes; name a node, such as {}",
                names.len(),
                names.join(", ")
            )
        }
    }
}

/// The graph, or the path between two of its devices.
fn shown(topology: &Topology, args: &GraphArgs) -> anyhow::Result<String> {
    match args.path.as_deref() {
        Some([from, to]) => Ok(route(topology, topology.device(from)?, topology.device(to)?)),
        _ => Ok(render(topology, args.output, args.look)),
    }
}

/// Rejects flags that have no effect on the output format.
fn check(output: Format, look: LookArgs) -> anyhow::Result<()> {
    let LookArgs { gpus_only, fold, theme } = look;
    let all = [
        ("--gpus-only", gpus_only, Format::Matrix),
        ("--fold", fold != Fold::Auto, Format::Matrix),
        ("--theme", theme != Theme::Auto, Format::Svg),
    ];
    for (flag, is_given, wanted) in all {
        anyhow::ensure!(
            !is_given || output == wanted,
            "{flag} requires `-o {wanted}`; the output is `{output}`"
        );
    }
    Ok(())
}

fn render(topology: &Topology, output: Format, look: LookArgs) -> String {
    match output {
        Format::Matrix => matrix_with(topology, matrix_options(look)),
        Format::Svg => svg(topology, look.theme),
        output => output.render(topology),
    }
}

fn matrix_options(look: LookArgs) -> MatrixOptions {
    MatrixOptions { gpus_only: look.gpus_only, fold: look.fold }
}

fn differences(one: &Topology, other: &Topology) -> String {
    let text = diff(one, other);
    if text.is_empty() { "no difference\n".to_owned() } else { text }
}

/// The cells of a posted matrix that differ from the graph.
fn compared(topology: &Topology, file: &Path) -> anyhow::Result<String> {
    let text = text(&bytes(file)?);
    let text = text.with_context(|| failed_to_read(file)).context("it is an archive, no matrix")?;
    match PostedMatrix::parse(&text) {
        Ok(matrix) => Ok(matrix.compare(topology).to_string()),
        Err(_) if listing(&text).is_ok() => {
            anyhow::bail!("`{}` is a listing of a machine; give it to --root", file.display())
        }
        Err(error) => Err(error).with_context(|| failed_to_read(file)),
    }
}

fn of_node(view: &ClusterView, node: &str) -> anyhow::Result<Topology> {
    let object = view.node_topology(node).with_context(|| unknown_node(view, node))?;
    Ok(Topology::from_spec(&object.spec)?)
}

/// Returns a warning for a size about which nothing is known beyond the machine's own sysfs.
fn unknown_size(args: &MachineArgs) -> Option<String> {
    let size = args.vm_size.as_ref().filter(|size| Overlay::built_in(size).is_none())?;
    Some(format!(
        "no description for virtual machine size `{size}`: the graph shows only what sysfs \
         shows, without the switches that the hypervisor hides"
    ))
}

/// The machine that the flags name, if they name one.
fn machine(args: &MachineArgs) -> anyhow::Result<Option<Topology>> {
    let overlay = match &args.nccl_xml {
        Some(path) => Some(nccl_overlay(path)?),
        None => args.vm_size.as_deref().and_then(Overlay::built_in),
    };
    let Some(root) = &args.root else {
        return Ok(overlay.map(|overlay| Topology::from_overlay(&overlay).0));
    };
    read(root, overlay.as_ref()).map(Some)
}

/// A folder is a mounted root; a file is an archive of one, a graph, or a listing.
fn read(path: &Path, overlay: Option<&Overlay>) -> anyhow::Result<Topology> {
    if path.is_file() {
        let bytes = bytes(path)?;
        anyhow::ensure!(!bytes.trim_ascii().is_empty(), "`{}` is empty", path.display());
        if bytes.starts_with(GRAPH) {
            let text = str::from_utf8(&bytes).context("a graph is text in UTF-8")?;
            return from_json(text).with_context(|| failed_to_read(path));
        }
        if let Some(text) = text(&bytes) {
            anyhow::ensure!(
                NcclXml::parse(&text).is_err(),
                "`{}` is a topology file of NCCL; give it to --nccl-xml",
                path.display()
            );
            let read = listing(&text);
            anyhow::ensure!(
                read.is_ok() || PostedMatrix::parse(&text).is_err(),
                "`{}` is a matrix; give it to --compare, beside a machine",
                path.display()
            );
            let snapshot = read.with_context(|| failed_to_read(path))?;
            return Ok(Topology::build_with(&snapshot, overlay, accelerators()).0);
        }
    }
    let snapshot = topology_graph::read(&host(path)?)?;
    Ok(Topology::build_with(&snapshot, overlay, accelerators()).0)
}

/// Bytes by which archives differ from text: a tar archive has its mark here, or is compressed.
const TAR_MARK: (usize, &[u8]) = (257, b"ustar");
const COMPRESSED: [&[u8]; 2] = [&[0x1f, 0x8b], b"BZh"];

/// The text, unless it is an archive. Windows writes UTF-16; a byte of another encoding is in a name, and
/// does not matter.
fn text(bytes: &[u8]) -> Option<String> {
    let (at, mark) = TAR_MARK;
    let is_tar = bytes.get(at..).is_some_and(|bytes| bytes.starts_with(mark));
    if is_tar || COMPRESSED.iter().any(|mark| bytes.starts_with(mark)) {
        return None;
    }
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => String::from_utf16_lossy(&units(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => String::from_utf16_lossy(&units(rest, u16::from_be_bytes)),
        bytes => String::from_utf8_lossy(bytes).into_owned(),
    };
    Some(text.replace('\0', ""))
}

fn units(bytes: &[u8], from: fn([u8; 2]) -> u16) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| from([pair[0], pair[1]])).collect()
}

fn host(root: &Path) -> anyhow::Result<HostRoot> {
    if !root.is_file() {
        return Ok(HostRoot::at(root));
    }
    HostRoot::in_archive(root, &bytes(root)?)
        .with_context(|| format!("failed to read the archive `{}`", root.display()))
}

fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| failed_to_read(path))
}

fn failed_to_read(path: &Path) -> String {
    format!("failed to read `{}`", path.display())
}

fn nccl_overlay(path: &Path) -> anyhow::Result<Overlay> {
    let text = text(&bytes(path)?);
    let text = text.with_context(|| failed_to_read(path)).context("it is an archive, no XML")?;
    let xml = NcclXml::parse(&text);
    anyhow::ensure!(
        xml.is_ok() || listing(&text).is_err(),
        "`{}` is a listing of a machine; give it to --root",
        path.display()
    );
    Ok(Overlay::from_nccl_xml(&xml.with_context(|| failed_to_read(path))?))
}

fn write_capture(
    root: Option<&Path>,
    identities: Identities,
    out: &Path,
) -> anyhow::Result<String> {
    let host = host(root.unwrap_or_else(|| Path::new("/")))?;
    let named = || format!("failed to write `{}`", out.display());
    let file = private().create(true).truncate(true).open(out).with_context(named)?;
    capture(&host, identities, file).with_context(named)?;
    Ok(format!("Captured to {}\n", out.display()))
}

fn unknown_node(view: &ClusterView, node: &str) -> String {
    let names: Vec<_> = view.node_topologies().map(|(name, _)| name).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("no graph is published for node `{node}`; nodes with a graph: {there}")
}
