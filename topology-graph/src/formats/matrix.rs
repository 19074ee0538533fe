//! The matrix that `nvidia-smi topo -m` prints, for a person.
//!
//! With the CPU and NUMA columns, a legend of the NICs and one of the words.

use std::fmt::Write;

use crate::graph::Vertex;
use crate::{NumaNode, PathKind, PciAddress, Topology};

/// The matrix of all GPUs and NICs, one line each, with its legends.
pub fn matrix(topology: &Topology) -> String {
    let devices = devices(topology);
    if devices.is_empty() {
        return "no GPU and no NIC found\n".to_owned();
    }
    let mut rows = vec![header(&devices)];
    rows.extend(devices.iter().map(|device| row(topology, &devices, device)));
    let mut text = table(&rows);
    text.push_str(&words(topology, &devices));
    text.extend(topology.note_on_nvlinks().map(|note| format!("\n{note}")));
    text.push_str(&nic_legend(topology));
    text
}

struct Device {
    name: String,
    address: PciAddress,
    numa: Option<NumaNode>,
}

fn devices(topology: &Topology) -> Vec<Device> {
    let gpus = topology.gpus().iter().map(|gpu| (gpu.name.clone(), gpu.address, gpu.numa));
    let nics = topology.nics().iter().map(|nic| (nic.name.clone(), nic.address, nic.numa));
    gpus.chain(nics).map(|(name, address, numa)| Device { name, address, numa }).collect()
}

fn header(devices: &[Device]) -> Vec<String> {
    let names = devices.iter().map(|device| device.name.clone());
    let ends = ["CPU Affinity", "NUMA Affinity"].map(str::to_owned);
    [String::new()].into_iter().chain(names).chain(ends).collect()
}

fn row(topology: &Topology, devices: &[Device], device: &Device) -> Vec<String> {
    let paths = devices.iter().map(|other| topology.path(device.address, other.address));
    let node = device.numa.and_then(|node| numa(topology, node));
    let cpus = node.map(|node| node.cpus.to_string()).filter(|cpus| !cpus.is_empty());
    let numa = device.numa.map(|node| node.to_string());
    let ends = [cpus, numa].map(|end| end.unwrap_or_else(|| "N/A".to_owned()));
    [device.name.clone()]
        .into_iter()
        .chain(paths.map(|path| path.to_string()))
        .chain(ends)
        .collect()
}

fn numa(topology: &Topology, node: NumaNode) -> Option<&Vertex> {
    topology.graph.numa(node)
}

/// Columns as wide as their widest cell, two blanks between them, none at the end.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Only the words that the matrix has.
fn words(topology: &Topology, devices: &[Device]) -> String {
    let mut used: Vec<PathKind> = devices
        .iter()
        .flat_map(|a| devices.iter().map(|b| topology.path(a.address, b.address)))
        .collect();
    // Far to near, as nvidia-smi lists them, and one line for all numbers of NVLinks.
    used.sort_unstable_by(|a, b| b.cmp(a));
    used.dedup_by_key(|kind| kind.meaning());
    let same = |kind: &PathKind| *kind == PathKind::Same;
    let (first, rest): (Vec<_>, Vec<_>) = used.into_iter().partition(same);
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

fn nic_legend(topology: &Topology) -> String {
    if topology.nics().is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    for nic in topology.nics() {
        let name = nic.kernel_name().cloned().unwrap_or_else(|| "-".to_owned());
        rows.push(vec![format!("  {}:", nic.name), name, nic.address.to_string()]);
    }
    format!("\nNIC Legend:\n{}", table(&rows))
}
