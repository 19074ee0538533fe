//! The text of `nvidia-smi topo -m` (also `-mp`), `rocm-smi --showtopo` and `amd-smi topology`.

use std::collections::{BTreeMap, BTreeSet};

use topology_graph::{PathKind, PciAddress};

use crate::plain::typed;

/// A matrix as somebody posted it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostedMatrix {
    /// The names of rows and columns: `GPU0`, `NIC3`, `mlx5_0`, `0000:c1:00.0`.
    pub(super) devices: Vec<String>,
    /// The cells, by the places of row and column in `devices`.
    pub(super) cells: Vec<(usize, usize, PostedPath)>,
    /// What the legend says about names: `NIC3` is `mlx5_3`.
    pub(super) names: BTreeMap<String, String>,
    /// Rows that were not read, with the reason.
    pub(super) unread: Vec<String>,
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
    /// No row has paths.
    #[error("found a matrix, but no row with paths: {0}")]
    NoRow(String),
    /// The words of Intel's program are others.
    #[error(
        "line {line}: `{text}` begins the matrix of `xpu-smi topology -m`, whose words for Xe Link are no \
         paths of this graph; compare with the output of `lspci -tv` by --root and --diff"
    )]
    Xpu {
        /// The line number, from 1.
        line: usize,
        /// The header.
        text: String,
    },
}

impl PostedMatrix {
    /// Parses the text of `nvidia-smi topo -m`, or the link types of `rocm-smi --showtopo` and `amd-smi
    /// topology`, also as a table of Markdown. Lines about other things are ignored.
    pub fn parse(text: &str) -> Result<Self, PostedMatrixError> {
        let text = typed(text);
        let mut matrix = Self::default();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut rows: BTreeSet<usize> = BTreeSet::new();
        let mut unread: BTreeSet<usize> = BTreeSet::new();
        let mut columns: Vec<usize> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let cells = line.trim().starts_with('|').then(|| line.replace('|', " "));
            let words: Vec<&str> = cells.as_deref().unwrap_or(line).split_whitespace().collect();
            if is_of_xpu(line) {
                return Err(PostedMatrixError::Xpu { line: number + 1, text: line.to_owned() });
            }
            if let Some(names) = header(&words) {
                columns = names.iter().map(|name| matrix.place(name, &mut places)).collect();
                if let Some(twice) = twice(&names) {
                    let line = number + 1;
                    matrix.unread.push(format!("line {line}: two columns are called `{twice}`"));
                    columns.clear();
                }
            } else if let Some((name, kernel)) = legend(line) {
                matrix.names.insert(name.to_owned(), kernel.to_owned());
            } else if let [name, cells @ ..] = words.as_slice() {
                let Some(row) = places.get(*name).filter(|row| columns.contains(row)) else {
                    if is_device(name) && cells.iter().any(|cell| path(cell).is_some()) {
                        let line = number + 1;
                        matrix
                            .unread
                            .push(format!("line {line}, `{name}`: no column has this name"));
                    }
                    continue;
                };
                if rows.contains(row) {
                    continue;
                }
                match paths(cells, columns.len(), columns.iter().position(|it| it == row)) {
                    Ok(paths) => {
                        rows.insert(*row);
                        let cells = columns.iter().zip(paths);
                        let cells = cells.filter_map(|(column, path)| Some((*row, *column, path?)));
                        matrix.cells.extend(cells);
                    }
                    Err(Unread::OtherTable) => {}
                    Err(Unread::Cell(cell)) => {
                        let line = number + 1;
                        unread.insert(*row);
                        matrix.unread.push(format!("line {line}, `{}`: {cell}", words[0]));
                    }
                }
            }
        }
        // Its name was broken, or whoever posted it left it out.
        let without = places.iter().filter(|(_, at)| !rows.contains(*at) && !unread.contains(*at));
        let without: Vec<_> = without.map(|(name, _)| format!("`{name}`")).collect();
        if !without.is_empty() {
            matrix.unread.push(format!("no row for {}", without.join(", ")));
        }
        let Self { cells, unread, .. } = &matrix;
        match (cells.is_empty(), unread.first()) {
            (true, Some(row)) => Err(PostedMatrixError::NoRow(row.clone())),
            (true, None) => Err(PostedMatrixError::NoMatrix),
            (false, _) => Ok(matrix),
        }
    }

    fn place(&mut self, name: &str, places: &mut BTreeMap<String, usize>) -> usize {
        *places.entry(name.to_owned()).or_insert_with(|| {
            self.devices.push(name.to_owned());
            self.devices.len() - 1
        })
    }
}

/// Why a row has no paths.
enum Unread {
    /// It is a row of numbers or of access rights.
    OtherTable,
    /// A cell is no path.
    Cell(String),
}

/// The paths of a row with so many columns, of which one is its own. Unseen paths are `None`.
fn paths(
    cells: &[&str],
    columns: usize,
    own: Option<usize>,
) -> Result<Vec<Option<PostedPath>>, Unread> {
    let cells = &cells[..cells.len().min(columns)];
    let is_other =
        cells.iter().enumerate().all(|(at, cell)| Some(at) == own || is_of_other_table(cell));
    if is_other && cells.iter().all(|cell| path(cell).is_none()) {
        return Err(Unread::OtherTable);
    }
    let mut paths = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        paths.push(match (path(cell), *cell) {
            (Some(path), _) => Some(path),
            (None, "?") => None,
            // `rocm-smi` writes 0 for a device and itself.
            (None, "0") if Some(at) == own => Some(PostedPath::Word(PathKind::Same)),
            (None, cell) => return Err(Unread::Cell(format!("`{cell}` is no path"))),
        });
    }
    if paths.len() < columns {
        return Err(Unread::Cell(format!("found {} cells for {columns} columns", paths.len())));
    }
    Ok(paths)
}

/// Weights, hops, and whether a GPU can access another one.
fn is_of_other_table(cell: &str) -> bool {
    cell.bytes().all(|digit| digit.is_ascii_digit() || digit == b'.')
        || matches!(
            cell,
            "ENABLED" | "DISABLED" | "N/A" | "True" | "False" | "SELF" | "?" | "OK" | "NS"
        )
}

fn path(cell: &str) -> Option<PostedPath> {
    match cell {
        "PCIE" => Some(PostedPath::Pcie),
        "SELF" => Some(PostedPath::Word(PathKind::Same)),
        "?" => None,
        cell => cell.parse().ok().map(PostedPath::Word),
    }
}

/// A name that is there twice: the rest of a longer one is on the next line.
fn twice<'t>(names: &[&'t str]) -> Option<&'t str> {
    let mut seen = BTreeSet::new();
    names.iter().find(|name| !seen.insert(**name)).copied()
}

/// Returns true for the header of `xpu-smi topology -m`: `GPU 0/0  GPU 0/1`.
fn is_of_xpu(line: &str) -> bool {
    let mut words = line.split_whitespace().filter(|word| *word != "|");
    words.next() == Some("GPU") && words.next().is_some_and(is_tile)
}

/// `0/1`.
fn is_tile(word: &str) -> bool {
    word.split_once('/').is_some_and(|(gpu, tile)| is_number(gpu) && is_number(tile))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

/// The names of the columns: those of devices, before the columns about CPUs and memory.
fn header<'t>(words: &[&'t str]) -> Option<Vec<&'t str>> {
    let words = match words {
        // Some notes begin the line with a sign for the empty corner.
        ["-", rest @ ..] => rest,
        all => all,
    };
    let names: Vec<&str> = words.iter().copied().take_while(|word| is_device(word)).collect();
    let is_first = names.first().is_some_and(|name| *name == "GPU0" || is_address(name));
    let is_header = is_first && (names.len() > 1 || names.len() == words.len());
    is_header.then_some(names)
}

fn is_device(word: &str) -> bool {
    is_numbered(word, "GPU")
        || is_numbered(word, "NIC")
        || is_address(word)
        || word.contains('_')
            && word.parse::<PathKind>().is_err()
            && !word.contains("Affinity")
            && !word.contains("NUMA")
}

fn is_numbered(word: &str, prefix: &str) -> bool {
    let digits = word.strip_prefix(prefix);
    digits.is_some_and(|rest| rest.bytes().all(|digit| digit.is_ascii_digit()))
}

/// `amd-smi` names GPUs by address.
fn is_address(word: &str) -> bool {
    word.parse::<PciAddress>().is_ok()
}

/// `  NIC0: mlx5_0`.
fn legend(line: &str) -> Option<(&str, &str)> {
    let (name, kernel) = line.trim().split_once(": ")?;
    (name.starts_with("NIC") && is_device(name)).then_some((name, kernel.trim()))
}
