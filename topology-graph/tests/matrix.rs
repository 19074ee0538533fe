//! Checks that a matrix with folded rows and columns loses no cell.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::collections::BTreeMap;

use topology_graph::fixture::{MACHINES, machine, plant};
use topology_graph::{Fold, Format, HostRoot, MatrixOptions, Topology, matrix, matrix_with, read};

fn topology_of(text: &str) -> Topology {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0
}

fn folded(topology: &Topology, fold: Fold) -> String {
    matrix_with(topology, MatrixOptions { gpus_only: false, fold })
}

/// The table's cells by row and column.
fn cells(text: &str) -> BTreeMap<(String, String), String> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let names = &header[..header.len().saturating_sub(4)];
    let rows = lines.take_while(|line| !line.is_empty());
    let cells = rows.flat_map(|line| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let columns = names.iter().chain(&["CPUs", "NUMA"]);
        let row = words[0].clone();
        columns
            .zip(words[1..].to_vec())
            .map(move |(column, cell)| ((row.clone(), (*column).to_owned()), cell))
            .collect::<Vec<_>>()
    });
    cells.collect()
}

/// Expands `NIC0-3` into `NIC0` to `NIC3`.
fn members(name: &str) -> Vec<String> {
    let Some((first, last)) = name.split_once('-') else { return vec![name.to_owned()] };
    let first: usize = first.strip_prefix("NIC").unwrap().parse().unwrap();
    (first..=last.parse().unwrap()).map(|number| format!("NIC{number}")).collect()
}

/// The cells as a person reads them from a folded matrix.
fn unfolded(text: &str) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for ((row, column), cell) in cells(text) {
        for one in members(&row) {
            for other in members(&column) {
                let cell = if one == other { "X" } else { &cell };
                all.insert((one.clone(), other), cell.to_owned());
            }
        }
    }
    all
}

#[test]
fn a_folded_matrix_loses_no_cell() {
    let mut narrower = 0;
    for (name, text) in MACHINES {
        let topology = topology_of(text);
        let (whole, short) = (matrix(&topology), folded(&topology, Fold::Always));
        if topology.gpus().is_empty() && topology.nics().is_empty() {
            assert_eq!(whole, short, "{name}");
            continue;
        }
        assert_eq!(unfolded(&short), cells(&whole), "{name}");
        for nic in topology.nics() {
            assert!(short.contains(&format!("  {}:", nic.name)), "{name} {}", nic.name);
        }
        narrower += usize::from(short.lines().count() < whole.lines().count());
    }
    assert!(narrower > 3, "{narrower} machines have equal NICs");
}

#[test]
fn only_wide_matrices_are_folded() {
    for (name, text) in MACHINES {
        let topology = topology_of(text);
        let whole = matrix(&topology);
        let is_wide =
            whole.lines().take_while(|line| !line.is_empty()).any(|line| line.len() > 160);
        let expected = if is_wide { Fold::Always } else { Fold::Never };
        assert_eq!(folded(&topology, Fold::Auto), folded(&topology, expected), "{name}");
        assert_eq!(folded(&topology, Fold::Never), whole, "{name}");
        assert_eq!(Format::Matrix.render(&topology), folded(&topology, Fold::Auto), "{name}");
    }
    let p5 = Format::Matrix.render(&topology_of(machine("aws-p5").unwrap()));
    let columns = p5.lines().next().unwrap().split_whitespace().take_while(|name| *name != "CPU");
    assert_eq!(columns.count(), 16, "{p5}");
    insta::assert_snapshot!(p5);
}

#[test]
fn gpus_only() {
    let topology = topology_of(machine("aws-p5").unwrap());
    let options = MatrixOptions { gpus_only: true, fold: Fold::Auto };
    let text = matrix_with(&topology, options);
    assert!(!text.contains("NIC"), "{text}");
    let whole = cells(&matrix(&topology));
    for ((row, column), cell) in cells(&text) {
        assert_eq!(whole[&(row.clone(), column.clone())], cell, "{row} {column}");
    }
    let gpus = topology.gpus().len();
    assert_eq!(cells(&text).len(), gpus * (gpus + 2));
    let nothing = topology_of(machine("nothing").unwrap());
    assert_eq!(matrix_with(&nothing, options), "no GPU found\n");
}
