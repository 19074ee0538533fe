//! The form of a published matrix beside the machines.
//!
//! ```text
//! # What it is. Source: … Date: … Driver: …
//! machine = dgx-a100
//! paths = pcie                    (without NVLinks, as `topo -mp` shows)
//! affinity = restricted           (CPUs and NUMA nodes are not the GPUs')
//! differs = NIC0 * SYS ?          (row, column, published, found; either way round)
//! GPU0 = 0000:07:00.0             (a column's device: an address or an RDMA device)
//!
//! -    GPU0 …                     (the matrix; `?` was not seen)
//! ```

use std::collections::BTreeMap;

/// The paths that a matrix shows between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    All,
    Pcie,
}

/// Whose CPUs and NUMA nodes a matrix shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    Gpus,
    Restricted,
}

/// Cells with a known difference: published value and the graph's value.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    devices: [String; 2],
    published: String,
    found: String,
}

#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) machine: String,
    pub(crate) paths: Paths,
    pub(crate) affinity: Affinity,
    pub(crate) differences: Vec<Difference>,
    /// Columns and rows in published order, with the device in the machine.
    pub(crate) devices: Vec<(String, String)>,
    columns: Vec<String>,
    rows: BTreeMap<String, Vec<String>>,
}

impl Published {
    pub(crate) fn parse(name: &str, text: &str) -> Self {
        let (head, text): (Vec<&str>, Vec<&str>) =
            text.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with('#'));
        let head = head.join("\n");
        for word in ["Source: ", "Date: ", "Driver: "] {
            assert!(head.contains(word), "{name} does not say its {word}");
        }
        let settings: Vec<(&str, &str)> =
            text.iter().filter_map(|line| line.split_once(" = ")).collect();
        let setting = |wanted| settings.iter().find(|(key, _)| *key == wanted).map(|found| found.1);
        let mut table = text.iter().filter(|line| !line.contains(" = "));
        let words = |line: &&str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let columns = table.next().map(words).unwrap_or_default();
        let differences = settings.iter().filter(|(key, _)| *key == "differs");
        let known = ["machine", "paths", "affinity", "differs"];
        let devices = settings.iter().filter(|(key, _)| !known.contains(key));
        let published = Self {
            machine: setting("machine").unwrap_or(name).to_owned(),
            paths: if setting("paths") == Some("pcie") { Paths::Pcie } else { Paths::All },
            affinity: match setting("affinity") {
                Some("restricted") => Affinity::Restricted,
                _ => Affinity::Gpus,
            },
            differences: differences.map(|(_, text)| Difference::parse(text)).collect(),
            devices: devices.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            rows: table.map(words).map(|mut row| (row.remove(0), row)).collect(),
            columns: columns.into_iter().skip(1).collect(),
        };
        for (row, _) in &published.devices {
            for (column, _) in &published.devices {
                assert!(published.value(row, column).is_some(), "{name}: no cell {row} {column}");
            }
        }
        published
    }

    fn value(&self, row: &str, column: &str) -> Option<&String> {
        let at = self.columns.iter().position(|known| known == column)?;
        self.rows[row].get(at)
    }

    /// The value of a cell, if it is published.
    pub(crate) fn cell(&self, row: &str, column: &str) -> Option<&String> {
        self.value(row, column).filter(|cell| *cell != "?")
    }

    pub(crate) fn cpu_affinity(&self, gpu: &str) -> Option<&String> {
        self.value(gpu, "CPU_Affinity")
    }

    /// `0,3-9`.
    pub(crate) fn numa_affinity(&self, gpu: &str) -> Option<Vec<u32>> {
        let ranges = self.value(gpu, "NUMA_Affinity")?.split(',').map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u32>().expect("a number of a NUMA node");
            number(first)..=number(last)
        });
        Some(ranges.flatten().collect())
    }

    /// The index of the matching known difference.
    pub(crate) fn difference(
        &self,
        row: &str,
        column: &str,
        published: &str,
        found: &str,
    ) -> Option<usize> {
        self.differences.iter().position(|difference| {
            let [a, b] = &difference.devices;
            let is_there =
                matches(a, row) && matches(b, column) || matches(a, column) && matches(b, row);
            is_there && difference.published == published && difference.found == found
        })
    }
}

impl Difference {
    fn parse(text: &str) -> Self {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let [a, b, published, found] = words.try_into().expect("row, column, published, found");
        Self { devices: [a, b], published, found }
    }
}

/// Matches a pattern; a `*` at the end matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |head| name.starts_with(head))
}
