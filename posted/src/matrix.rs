//! The text of `nvidia-smi topo -m` (also `-mp`) and of `rocm-smi --showtopo`.

use std::collections::BTreeMap;

use topology_graph::PathKind;

use crate::plain::typed;

/// A matrix as somebody posted it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostedMatrix {
    /// The cells by row and column: `GPU0`, `NIC3`, `mlx5_0`.
    pub(super) cells: Vec<(String, String, PostedPath)>,
    /// What the legend says about names: `NIC3` is `mlx5_3`.
    pub(super) names: BTreeMap<String, String>,
}

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostedPath {
    /// One of `nvidia-smi`'s words.
    Word(PathKind),
    /// Any path over PCIe: `rocm-smi` does not tell them apart.
    Pcie,
}

/// A text has no matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostedMatrixError {
    /// No line begins a matrix.
    #[error(
        "found no matrix: expected the output of `nvidia-smi topo -m` or `rocm-smi --showtopo`, with a \
         line of names (`GPU0 GPU1 …`) and a line for each device"
    )]
    NoMatrix,
}

impl PostedMatrix {
    /// Parses the text of `nvidia-smi topo -m`, or the link types of `rocm-smi --showtopo`. Other
    /// lines are ignored.
    pub fn parse(text: &str) -> Result<Self, PostedMatrixError> {
        let text = typed(text);
        let mut matrix = Self::default();
        let mut columns: Vec<&str> = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some(names) = header(&words) {
                columns = names;
            } else if let Some((name, kernel)) = legend(line) {
                matrix.names.insert(name.to_owned(), kernel.to_owned());
            } else if let [row, cells @ ..] = words.as_slice() {
                matrix.add(row, cells, &columns);
            }
        }
        if matrix.cells.is_empty() { Err(PostedMatrixError::NoMatrix) } else { Ok(matrix) }
    }

    /// Adds a row, if all its cells are paths. Numbers (weights and hops of `rocm-smi`) are not.
    fn add(&mut self, row: &str, cells: &[&str], columns: &[&str]) {
        let paths: Vec<Option<PostedPath>> =
            cells.iter().take(columns.len()).map(|cell| path(cell)).collect();
        let is_row = columns.contains(&row)
            && paths.len() == columns.len()
            && cells.iter().take(columns.len()).filter(|cell| is_number(cell)).count() <= 1;
        if !is_row || self.cells.iter().any(|(known, _, _)| known == row) {
            return;
        }
        for (column, path) in columns.iter().zip(paths) {
            // `rocm-smi` writes 0 for a device and itself.
            let path =
                path.or_else(|| (row == *column).then_some(PostedPath::Word(PathKind::Same)));
            if let Some(path) = path {
                self.cells.push((row.to_owned(), (*column).to_owned(), path));
            }
        }
    }
}

/// Returns true for what is neither a path nor unseen.
fn is_number(cell: &str) -> bool {
    path(cell).is_none() && cell != "?"
}

fn path(cell: &str) -> Option<PostedPath> {
    match cell {
        "PCIE" => Some(PostedPath::Pcie),
        "?" => None,
        cell => cell.parse().ok().map(PostedPath::Word),
    }
}

/// The names of the columns: those of devices, before the columns about CPUs and memory.
fn header<'t>(words: &[&'t str]) -> Option<Vec<&'t str>> {
    let words = match words {
        // Some notes begin the line with a sign for the empty corner.
        ["-", rest @ ..] => rest,
        all => all,
    };
    let names: Vec<&str> = words.iter().copied().take_while(|word| is_device(word)).collect();
    let is_header = names.first().is_some_and(|name| *name == "GPU0") && names.len() > 1
        || names.len() == words.len() && names == ["GPU0"];
    is_header.then_some(names)
}

fn is_device(word: &str) -> bool {
    let numbered = |prefix| {
        let digits = word.strip_prefix(prefix);
        digits.is_some_and(|rest: &str| rest.bytes().all(|digit| digit.is_ascii_digit()))
    };
    numbered("GPU")
        || numbered("NIC")
        || word.contains('_')
            && word.parse::<PathKind>().is_err()
            && !word.contains("Affinity")
            && !word.contains("NUMA")
}

/// `  NIC0: mlx5_0`.
fn legend(line: &str) -> Option<(&str, &str)> {
    let (name, kernel) = line.trim().split_once(": ")?;
    (name.starts_with("NIC") && is_device(name)).then_some((name, kernel.trim()))
}
