//! The law of readers: the same machine in any layout gives the same graph or an error, never another one.

use posted::listing;
use topology_graph::Topology;

/// Checks the law for a tree of `lspci -tv`, of which these bytes change the layout.
pub(crate) fn holds(tree: &str, bytes: &[u8]) {
    let Ok(whole) = listing(tree) else { return };
    let changed = changed(tree, bytes);
    let Ok(other) = listing(&changed) else { return };
    let (whole, other) = (Topology::build(&whole, None).0, Topology::build(&other, None).0);
    assert_eq!(shown(&other), shown(&whole), "another graph:\n{changed}");
}

/// The devices and the paths between them.
fn shown(topology: &Topology) -> String {
    topology_graph::matrix(topology)
}

/// The tree as a terminal, a mail or a word processor changes it.
fn changed(tree: &str, bytes: &[u8]) -> String {
    let at = |index: usize| usize::from(bytes.get(index).copied().unwrap_or_default());
    let lines = || tree.lines().enumerate();
    let chosen = at(1) % tree.lines().count().max(1);
    let is_chosen = |number: usize| number % (at(2) % 3 + 1) == chosen % (at(2) % 3 + 1);
    match at(0) % 9 {
        0 => lines().map(|(_, line)| format!("{:1$}{line}\n", "", at(1) % 9)).collect(),
        1 => tree.replace("--", "\u{2013}"),
        2 => tree.replace('\n', "\r"),
        3 => lines().map(|(_, line)| format!("> {line}\n")).collect(),
        4 => lines()
            .map(|(number, line)| match is_chosen(number) {
                true => format!("{}\n", line.split_whitespace().collect::<Vec<_>>().join(" ")),
                false => format!("{line}\n"),
            })
            .collect(),
        5 => wrapped(tree, 40 + at(1) % 60),
        6 => lines().map(|(_, line)| format!("{}\n", line.trim_start())).collect(),
        7 => lines()
            .map(|(number, line)| match is_chosen(number) {
                true => format!("{}\n", line.replacen("  ", " ", 1)),
                false => format!("{line}\n"),
            })
            .collect(),
        _ => lines().map(|(_, line)| format!("[1,0]<stdout>:{line}\n")).collect(),
    }
}

fn wrapped(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let signs: Vec<char> = line.chars().collect();
        for part in signs.chunks(width) {
            wrapped.extend(part);
            wrapped.push('\n');
        }
    }
    wrapped
}
