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
    let every = at(2) % 3 + 1;
    let is_chosen = |number: usize| number % every == at(1) % every;
    match at(0) % 9 {
        0 => each(tree, |_, line| format!("{:1$}{line}", "", at(1) % 9)),
        1 => tree.replace("--", "\u{2013}"),
        2 => tree.replace('\n', "\r"),
        3 => each(tree, |_, line| format!("> {line}")),
        4 => each(tree, |number, line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            if is_chosen(number) { words.join(" ") } else { line.to_owned() }
        }),
        5 => wrapped(tree, 40 + at(1) % 60),
        6 => each(tree, |_, line| line.trim_start().to_owned()),
        7 => each(tree, |number, line| {
            if is_chosen(number) { line.replacen("  ", " ", 1) } else { line.to_owned() }
        }),
        _ => each(tree, |_, line| format!("[1,0]<stdout>:{line}")),
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
    }
    wrapped
}
