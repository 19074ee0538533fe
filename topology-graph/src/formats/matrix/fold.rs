//! Folds NICs with equal cells into one line of the matrix.

use super::Line;
use crate::{PathKind, PciAddress, Topology};

/// How to read a shared line.
pub(super) const NOTE: &str = "
Folded:
  A row or column such as NIC0-3 stands for each of these NICs: their cells are equal.
  Where it meets itself, the cell is the path between two of them.
";

/// Folds adjacent NICs into one line if each has the same path to any other device, every two have
/// the same path between them, and all are on one NUMA node.
pub(super) fn fold(topology: &Topology, lines: &[Line]) -> Vec<Line> {
    let mut folded: Vec<Line> = Vec::new();
    for line in lines {
        let before = folded.last_mut().filter(|before| is_one_more(topology, lines, before, line));
        match before {
            Some(before) => before.devices.extend(&line.devices),
            None => folded.push(line.clone()),
        }
    }
    for line in folded.iter_mut().filter(|line| line.devices.len() > 1) {
        line.name = name(lines, line);
    }
    folded
}

/// Returns true if the line fits: its paths to all other devices, and to the folded NICs, are the
/// same as theirs.
fn is_one_more(topology: &Topology, lines: &[Line], these: &Line, line: &Line) -> bool {
    let [first, ..] = these.devices.as_slice() else { return false };
    let [next, ..] = line.devices.as_slice() else { return false };
    if these.is_gpu || line.is_gpu || these.numa != line.numa {
        return false;
    }
    let devices = lines.iter().flat_map(|line| &line.devices);
    let mut others = devices.filter(|other| !these.devices.contains(other) && *other != next);
    let between = these
        .devices
        .get(1)
        .map_or_else(|| topology.path(*first, *next), |second| topology.path(*first, *second));
    between != PathKind::Unknown
        && these.devices.iter().all(|one| topology.path(*one, *next) == between)
        && others.all(|other| topology.path(*first, *other) == topology.path(*next, *other))
}

/// `NIC0-3`: the name of the first NIC and the number of the last.
fn name(lines: &[Line], folded: &Line) -> String {
    let first = name_of_device(lines, folded.devices.first());
    let last = name_of_device(lines, folded.devices.last());
    let number = last.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    format!("{first}-{number}")
}

fn name_of_device<'l>(lines: &'l [Line], device: Option<&PciAddress>) -> &'l str {
    let line = lines.iter().find(|line| line.devices.first() == device);
    line.map_or("", |line| &line.name)
}
