//! Compares a machine with a matrix that somebody posted of it.

use std::collections::BTreeSet;
use std::fmt;

use topology_graph::{PathKind, PciAddress, Topology};

use crate::matrix::{PostedMatrix, PostedPath};

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of cells of which both devices and their NVLinks are known.
    pub compared: usize,
    /// The cells that differ, by row.
    pub differences: Vec<Difference>,
    /// The rows and columns whose device the machine does not have.
    pub unknown: Vec<String>,
    /// The number of cells with NVLinks that no source of the graph has.
    pub unknown_nvlinks: usize,
    /// The number of cells whose path the graph does not have.
    pub unknown_paths: usize,
    /// The rows that were not read, with the reason.
    pub unread: Vec<String>,
}

/// A cell that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The names of its row and column.
    pub devices: (String, String),
    /// The posted word.
    pub posted: String,
    /// The path in the graph.
    pub found: PathKind,
}

impl PostedMatrix {
    /// Compares every cell with a machine. GPUs are numbered by address; a NIC is the one that the
    /// legend names. Without a legend, NICs are numbered by the names of their RDMA devices, as
    /// `nvidia-smi` does; on a machine without such names, by address.
    pub fn compare(&self, topology: &Topology) -> Comparison {
        let rdma_devices = rdma_devices(topology);
        let ends: Vec<Option<PciAddress>> =
            self.devices.iter().map(|name| self.device(name, topology, &rdma_devices)).collect();
        let missing = self.devices.iter().zip(&ends).filter(|(_, end)| end.is_none());
        let mut comparison = Comparison {
            unknown: missing.map(|(name, _)| name.clone()).collect(),
            unread: self.unread.clone(),
            ..Comparison::default()
        };
        let unlinked = topology.gpus_with_unknown_nvlinks();
        let unlinked: BTreeSet<PciAddress> = unlinked.iter().map(|gpu| gpu.address).collect();
        for (row, column, posted) in &self.cells {
            let (Some(a), Some(b)) = (ends[*row], ends[*column]) else { continue };
            if posted.is_nvlink() && unlinked.contains(&a) && unlinked.contains(&b) {
                comparison.unknown_nvlinks += 1;
                continue;
            }
            let found = topology.path(a, b);
            if found == PathKind::Unknown {
                comparison.unknown_paths += 1;
                continue;
            }
            comparison.compared += 1;
            if !posted.agrees(found) {
                comparison.differences.push(Difference {
                    devices: (self.devices[*row].clone(), self.devices[*column].clone()),
                    posted: posted.to_string(),
                    found,
                });
            }
        }
        comparison
    }

    fn device(
        &self,
        name: &str,
        topology: &Topology,
        rdma_devices: &[(&str, PciAddress)],
    ) -> Option<PciAddress> {
        let number: Option<usize> = name.strip_prefix("NIC").and_then(|it| it.parse().ok());
        let known = self.names.get(name).and_then(|kernel| topology.device(kernel).ok());
        match number {
            _ if known.is_some() => known,
            Some(_) if !self.names.is_empty() && !rdma_devices.is_empty() => None,
            Some(number) if !rdma_devices.is_empty() => {
                rdma_devices.get(number).map(|(_, address)| *address)
            }
            _ => topology.device(name).ok(),
        }
    }
}

/// The RDMA devices of a machine in the order of their names, `mlx5_2` before `mlx5_10`.
fn rdma_devices(topology: &Topology) -> Vec<(&str, PciAddress)> {
    let named = topology.nics().iter();
    let mut devices: Vec<(&str, PciAddress)> =
        named.filter_map(|nic| Some((nic.rdma_device.as_deref()?, nic.address))).collect();
    devices.sort_by_key(|(name, _)| {
        let digits = name.trim_end_matches(|it: char| it.is_ascii_digit()).len();
        (&name[..digits], name[digits..].parse::<u64>().ok())
    });
    devices
}

impl PostedPath {
    fn is_nvlink(self) -> bool {
        matches!(self, Self::Word(PathKind::NvLink(_)))
    }

    fn agrees(self, found: PathKind) -> bool {
        match self {
            Self::Word(word) => word == found,
            Self::Pcie => !matches!(found, PathKind::NvLink(_) | PathKind::Xgmi),
        }
    }
}

impl fmt::Display for PostedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => word.fmt(f),
            Self::Pcie => f.pad("PCIE"),
        }
    }
}

/// A line for each cell that differs, and a summary.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Difference { devices: (row, column), posted, found } in &self.differences {
            writeln!(f, "{row} {column}: posted {posted}, found {found}")?;
        }
        let Self { compared, differences, unknown, unknown_nvlinks, unknown_paths, unread } = self;
        writeln!(f, "{compared} cells compared, {} differ", differences.len())?;
        if *unknown_nvlinks > 0 {
            writeln!(
                f,
                "{unknown_nvlinks} cells not compared: the graph does not know these NVLinks"
            )?;
        }
        if *unknown_paths > 0 {
            writeln!(f, "{unknown_paths} cells not compared: the graph does not know these paths")?;
        }
        for row in unread {
            writeln!(f, "row not read: {row}")?;
        }
        if !unknown.is_empty() {
            writeln!(f, "not on this machine: {}", unknown.join(", "))?;
        }
        Ok(())
    }
}
