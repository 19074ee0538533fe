//! Compares a machine with a matrix that somebody posted of it.

use std::fmt;

use topology_graph::{PathKind, PciAddress, Topology};

use crate::matrix::{PostedMatrix, PostedPath};

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of cells of which both devices are known.
    pub compared: usize,
    /// The cells that differ, by row.
    pub differences: Vec<Difference>,
    /// The rows and columns whose device the machine does not have.
    pub unknown: Vec<String>,
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
    /// legend names, or else the one with that number.
    pub fn compare(&self, topology: &Topology) -> Comparison {
        let mut comparison = Comparison::default();
        for (row, column, posted) in &self.cells {
            let ends = [row, column].map(|name| self.device(name, topology));
            for (name, end) in [row, column].into_iter().zip(ends) {
                if end.is_none() && !comparison.unknown.contains(name) {
                    comparison.unknown.push(name.clone());
                }
            }
            let [Some(a), Some(b)] = ends else { continue };
            let found = topology.path(a, b);
            comparison.compared += 1;
            if !posted.agrees(found) {
                comparison.differences.push(Difference {
                    devices: (row.clone(), column.clone()),
                    posted: posted.to_string(),
                    found,
                });
            }
        }
        comparison
    }

    fn device(&self, name: &str, topology: &Topology) -> Option<PciAddress> {
        let by_legend = self.names.get(name).and_then(|kernel| topology.device(kernel).ok());
        by_legend.or_else(|| topology.device(name).ok())
    }
}

impl PostedPath {
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
        let Self { compared, differences, unknown } = self;
        writeln!(f, "{compared} cells compared, {} differ", differences.len())?;
        if !unknown.is_empty() {
            writeln!(f, "not on this machine: {}", unknown.join(", "))?;
        }
        Ok(())
    }
}
