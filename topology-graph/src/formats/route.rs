//! The route between two devices, as text for people: each vertex with its address and the
//! connection to the previous one, the narrowest link, and the path kind with its meaning.

use std::fmt::Write;

use super::device_label;
use crate::graph::Role;
use crate::route::{Bottleneck, Connection, Hop, Route};
use crate::{PathKind, PciAddress, PcieLink, Topology};

/// A text does not name a GPU, NIC or NVMe controller of a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown device `{name}`; known devices: {known}")]
pub struct UnknownDevice {
    name: String,
    known: String,
}

impl Topology {
    /// Finds a device by any of its names: `GPU0`, `NIC3`, `NVME1`, the kernel's name (`mlx5_0`,
    /// `ens1`, `nvme0`), a GPU's UUID, or its address. The error lists all devices.
    pub fn device(&self, name: &str) -> Result<PciAddress, UnknownDevice> {
        let gpus = self.gpus().iter();
        let gpu = gpus.filter(|gpu| gpu.name == name || gpu.uuid.as_deref() == Some(name));
        let named = gpu.map(|gpu| gpu.address);
        let named = named.chain(
            self.nics()
                .iter()
                .filter(|nic| {
                    let kernel = nic.rdma_device.iter().chain(&nic.netdevs);
                    nic.name == name || kernel.into_iter().any(|known| known == name)
                })
                .map(|nic| nic.address),
        );
        let mut named = named.chain(
            self.nvmes()
                .iter()
                .filter(|disk| disk.name == name || disk.kernel_name.as_deref() == Some(name))
                .map(|disk| disk.address),
        );
        named
            .next()
            .or_else(|| name.parse().ok().filter(|at| self.endpoints().contains(at)))
            .ok_or_else(|| UnknownDevice { name: name.to_owned(), known: self.device_names() })
    }

    fn device_names(&self) -> String {
        let labels = self.gpus().iter().map(|gpu| gpu.address);
        let labels = labels.chain(self.nics().iter().map(|nic| nic.address));
        let labels = labels.chain(self.nvmes().iter().map(|disk| disk.address));
        let labels: Vec<String> = labels.filter_map(|address| short_label(self, address)).collect();
        if labels.is_empty() { "none".to_owned() } else { labels.join(", ") }
    }
}

/// The route between two devices, one line per vertex.
pub fn route(topology: &Topology, from: PciAddress, to: PciAddress) -> String {
    let names = [from, to].map(|end| short_label(topology, end).unwrap_or_default());
    let kind = topology.path(from, to);
    let mut text = format!("{}: {kind}\n{}\n", names.join(" to "), kind.meaning());
    let Some(route) = topology.route(from, to) else { return text };
    if kind == PathKind::Same {
        return text;
    }
    text.push('\n');
    let rows: Vec<[String; 3]> =
        (0..route.hops.len()).map(|at| row(topology, &route, at)).collect();
    let widths = [0, 1]
        .map(|column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for [vertex, place, by] in &rows {
        // Writing to a String cannot fail, here and below.
        let line = format!("{vertex:<0$}  {place:<1$}  {by}", widths[0], widths[1]);
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    let _ = writeln!(text, "\n{}", narrowest(&route));
    text
}

/// `GPU0`, or `NIC3 (mlx5_3)`.
fn short_label(topology: &Topology, address: PciAddress) -> Option<String> {
    if let Some(gpu) = topology.gpu(address) {
        return Some(gpu.name.clone());
    }
    let label = device_label(topology, address)?;
    Some(match label.split_once(' ') {
        Some((name, kernel)) => format!("{name} ({kernel})"),
        None => label,
    })
}

fn row(topology: &Topology, route: &Route, at: usize) -> [String; 3] {
    let Hop { place, role, by } = route.hops[at];
    let label = place.address().and_then(|address| device_label(topology, address));
    let before = at.checked_sub(1).map(|before| route.hops[before].role);
    let by = by.zip(before).map(|(by, before)| words(by, before, role));
    [label.unwrap_or_else(|| role.to_string()), place.to_string(), by.unwrap_or_default()]
}

/// The connection between a vertex and the previous one.
fn words(by: Connection, before: Role, role: Role) -> String {
    match by {
        Connection::Pcie { possible: None, current: None } => "PCIe, speed unknown".to_owned(),
        Connection::Pcie { possible, current } => pcie(possible, current),
        Connection::Attachment => attachment(before, role).to_owned(),
        Connection::DataPath => "moves its data".to_owned(),
        Connection::Numa { distance: Some(distance) } => {
            format!("between NUMA nodes, distance {distance}")
        }
        Connection::Numa { distance: None } => "between NUMA nodes, distance unknown".to_owned(),
        Connection::ChipToChip { bandwidth } => {
            let bandwidth = bandwidth.map(|megabytes| format!(", {}", gigabytes(megabytes)));
            format!("NVLink-C2C{}", bandwidth.unwrap_or_default())
        }
        Connection::NvLink { links } => format!("{links} NVLinks"),
        Connection::Xgmi { hops, bandwidth } => xgmi(hops, bandwidth),
    }
}

fn xgmi(hops: Option<u32>, bandwidth: Option<u32>) -> String {
    let hops = match hops {
        Some(1) => ", 1 link".to_owned(),
        Some(hops) => format!(", {hops} links in a row"),
        None => String::new(),
    };
    let bandwidth = bandwidth.map(|megabytes| format!(", {}", gigabytes(megabytes)));
    format!("XGMI{hops}{}", bandwidth.unwrap_or_default())
}

/// The link at current speed; if that is lower, also the possible speed.
fn pcie(possible: Option<PcieLink>, current: Option<PcieLink>) -> String {
    match (current, possible) {
        (Some(now), Some(best)) if now != best => {
            format!("{}; it could run {best}", with_rate(now))
        }
        (Some(link), _) | (None, Some(link)) => with_rate(link),
        (None, None) => String::new(),
    }
}

/// `PCIe 32.0 GT/s x16, 63.0 GB/s`.
fn with_rate(link: PcieLink) -> String {
    format!("PCIe {link}, {}", gigabytes(link.megabytes_per_second()))
}

fn attachment(before: Role, role: Role) -> &'static str {
    match (before, role) {
        (Role::NumaNode, _) | (_, Role::NumaNode) => "on that NUMA node",
        (Role::HostBridge, _) | (_, Role::HostBridge) => "on that root bus",
        (Role::Gpu, _) | (_, Role::Gpu) => "inside of that GPU",
        _ => "in the same switch",
    }
}

/// The link that limits the route.
fn narrowest(route: &Route) -> String {
    let Some(Bottleneck { hop, megabytes_per_second }) = route.bottleneck() else {
        return "Bottleneck: unknown; no link on the route shows its speed".to_owned();
    };
    let ends = [hop.checked_sub(1), Some(hop)].into_iter().flatten();
    let ends = ends.filter_map(|end| route.hops.get(end));
    let ends: Vec<String> = ends.map(|end| end.place.to_string()).collect();
    format!(
        "Bottleneck: {} in one direction, at {}",
        gigabytes(megabytes_per_second),
        ends.join(" – ")
    )
}

fn gigabytes(megabytes: u32) -> String {
    format!("{:.1} GB/s", f64::from(megabytes) / 1_000.0)
}
