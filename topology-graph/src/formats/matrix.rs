//! The matrix of `nvidia-smi topo -m`, for people.
//!
//! It has the CPU and NUMA columns, a legend of the NICs and a legend of the path kinds. NICs with
//! equal cells can share one row and one column; no cell is lost.

mod fold;

use std::fmt::Write;

use crate::graph::Vertex;
use crate::text;
use crate::{NicRole, NumaNode, PathKind, PciAddress, Topology};
use fold::fold;

/// The line width, in characters, above which NICs share rows and columns by default. Eight GPUs
/// with ten NICs are narrower.
const WIDE: usize = 160;

/// Options of the matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixOptions {
    /// Shows only the rows and columns of GPUs.
    pub gpus_only: bool,
    /// When NICs with equal cells share a row and a column.
    pub fold: Fold,
}

/// When NICs with equal cells share a row and a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fold {
    /// If a line would exceed 160 characters.
    #[default]
    Auto,
    /// Whenever NICs have equal cells.
    Always,
    /// Never: each NIC has a row and a column, as in `nvidia-smi topo -m`.
    Never,
}

/// The matrix of all GPUs and NICs, with its legends.
pub fn matrix(topology: &Topology) -> String {
    matrix_with(topology, MatrixOptions { gpus_only: false, fold: Fold::Never })
}

/// The matrix with these options, with its legends.
pub fn matrix_with(topology: &Topology, options: MatrixOptions) -> String {
    let lines = lines(topology, options.gpus_only);
    if lines.is_empty() {
        let kinds = if options.gpus_only { "no GPU" } else { "no GPU and no NIC" };
        return format!("{kinds} found\n");
    }
    let lines = match options.fold {
        Fold::Always => fold(topology, &lines),
        Fold::Auto if is_wide(topology, &lines) => fold(topology, &lines),
        Fold::Auto | Fold::Never => lines,
    };
    let nics = if options.gpus_only { String::new() } else { nic_legend(topology, &lines) };
    let note = topology.note_on_nvlinks().map(|note| format!("\n{note}")).unwrap_or_default();
    format!("{}{}{note}{nics}", cells(topology, &lines), words(topology, &lines))
}

/// Whether a line of the cells is too long to be read.
fn is_wide(topology: &Topology, lines: &[Line]) -> bool {
    cells(topology, lines).lines().any(|line| line.chars().count() > WIDE)
}

/// A row and its column: a device, or NICs with equal cells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// `NIC4`, `NIC0-3`.
    name: String,
    /// By address; never empty.
    devices: Vec<PciAddress>,
    numa: Option<NumaNode>,
    is_gpu: bool,
}

fn lines(topology: &Topology, gpus_only: bool) -> Vec<Line> {
    let gpus = topology.gpus().iter().map(|gpu| Line::new(&gpu.name, gpu.address, gpu.numa, true));
    let nics = topology.nics().iter().filter(|_| !gpus_only);
    gpus.chain(nics.map(|nic| Line::new(&nic.name, nic.address, nic.numa, false))).collect()
}

impl Line {
    /// The line of a single device.
    fn new(name: &str, device: PciAddress, numa: Option<NumaNode>, is_gpu: bool) -> Self {
        Self { name: name.to_owned(), devices: vec![device], numa, is_gpu }
    }

    /// The path from its devices to those of another line. Within one line, the path between two of
    /// its devices, if there are two.
    fn path(&self, topology: &Topology, other: &Self) -> PathKind {
        let from = self.devices.first();
        let to = if self == other { self.devices.last() } else { other.devices.first() };
        match (from, to) {
            (Some(from), Some(to)) => topology.path(*from, *to),
            _ => PathKind::Unknown,
        }
    }
}

/// Header and rows.
fn cells(topology: &Topology, lines: &[Line]) -> String {
    let mut rows = vec![header(lines)];
    rows.extend(lines.iter().map(|line| row(topology, lines, line)));
    table(&rows)
}

fn header(lines: &[Line]) -> Vec<String> {
    let names = lines.iter().map(|line| line.name.clone());
    let ends = ["CPU Affinity", "NUMA Affinity"].map(str::to_owned);
    [String::new()].into_iter().chain(names).chain(ends).collect()
}

fn row(topology: &Topology, lines: &[Line], line: &Line) -> Vec<String> {
    let paths = lines.iter().map(|other| line.path(topology, other));
    let node = line.numa.and_then(|node| numa(topology, node));
    let cpus = node.map(|node| node.cpus.to_string()).filter(|cpus| !cpus.is_empty());
    let numa = line.numa.map(|node| node.to_string());
    let ends = [cpus, numa].map(|end| end.unwrap_or_else(|| "N/A".to_owned()));
    [line.name.clone()].into_iter().chain(paths.map(|path| path.to_string())).chain(ends).collect()
}

fn numa(topology: &Topology, node: NumaNode) -> Option<&Vertex> {
    topology.graph.numa(node)
}

/// Pads columns to their widest cell, separates them with two spaces, and trims the end.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns).map(|column| width(rows, column)).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        })
        .collect()
}

fn width(rows: &[Vec<String>], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(column));
    cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// The legend of the path kinds in the matrix.
fn words(topology: &Topology, lines: &[Line]) -> String {
    let mut used: Vec<PathKind> =
        lines.iter().flat_map(|a| lines.iter().map(|b| a.path(topology, b))).collect();
    // From far to near, as nvidia-smi lists them; one line covers all numbers of NVLinks.
    used.sort_unstable_by(|a, b| b.cmp(a));
    used.dedup_by_key(|kind| kind.meaning());
    let (first, rest): (Vec<_>, Vec<_>) =
        used.into_iter().partition(|kind| *kind == PathKind::Same);
    let mut text = "\nLegend:\n".to_owned();
    for kind in first.into_iter().chain(rest) {
        let word = match kind {
            PathKind::NvLink(_) => "NV#".to_owned(),
            kind => kind.to_string(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {word:<4} = {}", kind.meaning());
    }
    text
}

/// The legend of all NICs with their names, below the line that they share, and with their role if
/// they are not for compute.
fn nic_legend(topology: &Topology, lines: &[Line]) -> String {
    if topology.nics().is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    let mut shared = false;
    for line in lines.iter().filter(|line| !line.is_gpu) {
        for address in &line.devices {
            let Some(nic) = topology.nic(*address) else { continue };
            let known_as = nic.kernel_name().cloned().unwrap_or_else(|| "-".to_owned());
            let role = Some(nic.role).filter(|role| *role != NicRole::Compute);
            let role = role.map(|role| role.to_string()).unwrap_or_default();
            rows.push(vec![format!("  {}:", nic.name), known_as, nic.address.to_string(), role]);
        }
        shared |= line.devices.len() > 1;
    }
    let note = if shared { fold::NOTE } else { "" };
    format!("{note}\nNIC Legend:\n{}", table(&rows))
}

text::words! {
    Fold, ParseFoldError("value"):
    Auto = "auto", Always = "always", Never = "never"
}
