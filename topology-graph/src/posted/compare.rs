//! Compares a machine with a matrix that somebody posted of it.

use std::fmt;

use super::matrix::{PostedMatrix, PostedPath};
use crate::{PathKind, PciAddress, Topology};

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

impl Topology {
    /// Compares every cell. GPUs are numbered by address; a NIC is the one that the legend names, or
    /// else the one with that number.
    pub fn compare(&self, matrix: &PostedMatrix) -> Comparison {
        let mut comparison = Comparison::default();
        for (row, column, posted) in &matrix.cells {
            let ends = [row, column].map(|name| self.posted_device(name, matrix));
            for (name, end) in [row, column].into_iter().zip(ends) {
                if end.is_none() && !comparison.unknown.contains(name) {
                    comparison.unknown.push(name.clone());
                }
            }
            let [Some(a), Some(b)] = ends else { continue };
            let found = self.path(a, b);
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

    fn posted_device(&self, name: &str, matrix: &PostedMatrix) -> Option<PciAddress> {
        let kernel = matrix.names.get(name).map(String::as_str);
        let by_legend = kernel.and_then(|kernel| self.device(kernel).ok());
        by_legend.or_else(|| self.device(name).ok())
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
