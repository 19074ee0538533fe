//! The law of readers: the same machine in any layout gives the same graph or an error, never another one.

#![allow(dead_code, reason = "each fuzz target checks the law of one reader")]

use std::iter::repeat_n;

use posted::{PostedMatrix, listing};
use topology_graph::{PciAddress, Topology};

/// One machine in every form that is read: the tree of `lspci -tv`, the descriptions of `-vvv`, the paths of
/// `-PP`, and hwloc's XML.
pub(crate) const TREE: &str = include_str!("../tests/posted/tree.txt");
pub(crate) const DETAILS: &str = include_str!("../tests/posted/vvv.txt");
pub(crate) const PATHS: &str = include_str!("../tests/posted/pp.txt");
pub(crate) const HWLOC: &str = include_str!("../tests/posted/power8-nvlink.hwloc.xml");

/// A listing that is whole, and the matrix of its graph.
pub(crate) struct WholeListing {
    text: &'static str,
    shown: String,
}

impl WholeListing {
    pub(crate) fn new(text: &'static str) -> Self {
        let snapshot = listing(text).expect("the listing is whole");
        Self { text, shown: shown(&Topology::build(&snapshot, None).0) }
    }

    /// Checks the law, these bytes changing the layout. Returns true if the listing was read.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let changed = changed(self.text, bytes);
        let Ok(other) = listing(&changed) else { return false };
        let other = Topology::build(&other, None).0;
        assert_eq!(shown(&other), self.shown, "another graph:\n{changed}");
        true
    }
}

/// The matrix of a machine, of which each cell is read.
pub(crate) struct WholeMatrix {
    topology: Topology,
    text: String,
    compared: usize,
}

impl WholeMatrix {
    pub(crate) fn of(topology: Topology) -> Self {
        let text = matrix_of(&topology);
        let whole = PostedMatrix::parse(&text).expect("the matrix is whole").compare(&topology);
        assert_eq!((whole.differences.len(), whole.unread.len()), (0, 0), "{text}");
        Self { topology, text, compared: whole.compared }
    }

    /// Checks the law, these bytes changing the layout: each cell is as it was, and what is not read is named.
    /// Returns true if all was read.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let changed = changed(&self.text, bytes);
        let Ok(other) = PostedMatrix::parse(&changed) else { return false };
        let other = other.compare(&self.topology);
        assert_eq!(other.differences, [], "{changed}");
        let is_named = !other.unread.is_empty() || !other.unknown.is_empty();
        let is_whole = other.compared == self.compared;
        assert!(is_named || is_whole, "cells were dropped:\n{changed}");
        is_whole
    }
}

/// The matrix of a machine in the form of `nvidia-smi topo -m`.
fn matrix_of(topology: &Topology) -> String {
    let gpus = topology.gpus().iter().map(|gpu| gpu.address).enumerate();
    let gpus = gpus.map(|(index, address)| (format!("GPU{index}"), address));
    let nics = topology.nics().iter().map(|nic| nic.address).enumerate();
    let nics = nics.map(|(index, address)| (format!("NIC{index}"), address));
    let devices: Vec<(String, PciAddress)> = gpus.chain(nics.clone()).collect();
    let names = devices.iter().map(|(name, _)| name);
    let mut text = names.fold(String::new(), |text, name| text + "\t" + name);
    text += "\tCPU Affinity\tNUMA Affinity\n";
    for (name, from) in &devices {
        text += name;
        let cells = devices.iter().map(|(_, to)| format!("\t{}", topology.path(*from, *to)));
        text.extend(cells);
        text += "\t0-31\t0\n";
    }
    text += "\nNIC Legend:\n\n";
    nics.fold(text, |text, (name, address)| text + &format!("  {name}: {address}\n"))
}

/// The devices and the paths between them.
fn shown(topology: &Topology) -> String {
    topology_graph::matrix(topology)
}

/// The most changes, one after the other.
const CHANGES_MAX: usize = 2;

/// The text as a terminal, a mail, a tracker or a word processor changes it: one change for three bytes.
fn changed(text: &str, bytes: &[u8]) -> String {
    let changes = bytes.chunks(3).take(CHANGES_MAX);
    changes.fold(text.to_owned(), |text, bytes| changed_once(&text, bytes))
}

fn changed_once(text: &str, bytes: &[u8]) -> String {
    let at = |index: usize| usize::from(bytes.get(index).copied().unwrap_or_default());
    let every = at(2) % 3 + 1;
    let is_chosen = |number: usize| number % every == at(1) % every;
    match at(0) % 18 {
        0 => each(text, |_, line| format!("{:1$}{line}", "", at(1) % 9)),
        1 => text.replace("--", "\u{2013}"),
        2 => text.replace('\n', "\r"),
        3 => each(text, |_, line| format!("> {line}")),
        4 => each(text, |number, line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            if is_chosen(number) { words.join(" ") } else { line.to_owned() }
        }),
        5 => wrapped(text, 40 + at(1) % 160),
        6 => each(text, |_, line| line.trim_start().to_owned()),
        7 => each(text, |number, line| {
            if is_chosen(number) { line.replacen("  ", " ", 1) } else { line.to_owned() }
        }),
        8 => each(text, |_, line| format!("[1,0]<stdout>:{line}")),
        9 => format!("\u{feff}{}", text.replace('\n', "\r\n")),
        10 => each(text, |number, line| format!("{line}{:1$}", "", number % (at(1) + 1))),
        11 => wrapped_at_words(text, 40 + at(1) % 160),
        12 => text.replace(' ', "\u{a0}"),
        13 => each(text, |_, line| expanded(line)),
        14 => each(text, |number, line| {
            let reply = if is_chosen(number) { "\nWhat is this?\n" } else { "" };
            format!("> {line}\n{reply}")
        }),
        15 => format!("Hello,\n\n```\n{text}```\n\nThanks\n"),
        16 => each(text, |_, line| format!("\u{1b}[4m{line}\u{1b}[0m")),
        _ => wrapped(&each(text, |_, line| expanded(line)), 40 + at(1) % 160),
    }
}

fn each(text: &str, change: impl Fn(usize, &str) -> String) -> String {
    let lines = text.lines().enumerate().map(|(number, line)| change(number, line));
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

fn wrapped(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let signs: Vec<char> = line.chars().collect();
        for part in signs.chunks(width) {
            wrapped.extend(part);
            wrapped.push('\n');
        }
        if signs.is_empty() {
            wrapped.push('\n');
        }
    }
    wrapped
}

/// As a mail breaks lines: the space goes.
fn wrapped_at_words(text: &str, width: usize) -> String {
    each(text, |_, line| {
        let mut broken = String::new();
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            if column + word.trim_end().len() > width && column > 0 {
                broken.truncate(broken.trim_end_matches(' ').len());
                broken.push('\n');
                column = 0;
            }
            broken.push_str(word);
            column += word.len();
        }
        broken
    })
}

/// A terminal shows tabs as spaces.
fn expanded(line: &str) -> String {
    line.chars().fold(String::new(), |mut text, sign| {
        match sign {
            '\t' => text.extend(repeat_n(' ', 8 - text.len() % 8)),
            sign => text.push(sign),
        }
        text
    })
}
