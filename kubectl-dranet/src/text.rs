//! Texts that several commands print.

use crate::args::Form;
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{MatrixOptions, NodeTopology, ShapeHash, Topology, matrix_with};

/// A value as a YAML document.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    serde_saphyr::to_string(value).context("failed to write YAML")
}

/// A value as one document of JSON or YAML.
pub(crate) fn document(value: &Value, is_yaml: bool) -> anyhow::Result<String> {
    if is_yaml { yaml(value) } else { Ok(serde_json::to_string_pretty(value)? + "\n") }
}

/// The number of a JSON value; 0 for any other value.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// The text of a JSON string; empty for any other value.
pub(crate) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An answer as a document.
pub(crate) fn answer(answer: &impl Serialize, is_yaml: bool) -> anyhow::Result<String> {
    document(&serde_json::to_value(answer)?, is_yaml)
}

impl Form {
    /// An answer in this format; `person` is its text for a person.
    pub(crate) fn write(
        self,
        answer: &impl Serialize,
        person: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<String> {
        match self {
            Self::Text => person(),
            Self::Json => self::answer(answer, false),
            Self::Yaml => self::answer(answer, true),
        }
    }
}

/// Documents one after the other.
pub(crate) fn documents(values: &[Value], is_yaml: bool) -> anyhow::Result<String> {
    let texts: anyhow::Result<Vec<_>> =
        values.iter().map(|value| document(value, is_yaml)).collect();
    Ok(texts?.join(if is_yaml { "---\n" } else { "" }))
}

/// Maximum number of nodes that are named.
const NAMED: usize = 4;

/// `node a`, `3 nodes (a, b, c)`, `9 nodes (a, b, c, d and 5 more)`.
pub(crate) fn node_list(names: &[&str]) -> String {
    match names {
        [name] => format!("node {name}"),
        names if names.len() <= NAMED => format!("{} nodes ({})", names.len(), names.join(", ")),
        names => {
            let (first, rest) = names.split_at(NAMED);
            format!("{} nodes ({} and {} more)", names.len(), first.join(", "), rest.len())
        }
    }
}

/// What holds for nodes, in a sentence that is written for one: `node a: is cordoned`, `2 nodes
/// (a, b): are cordoned`.
pub(crate) fn of_nodes(names: &[&str], sentence: &str) -> String {
    let said = if names.len() == 1 { sentence.to_owned() } else { in_plural(sentence) };
    format!("{}: {said}", node_list(names))
}

/// A sentence that is written for one, for several: `are cordoned`.
pub(crate) fn in_plural(sentence: &str) -> String {
    let (verb, rest) = sentence.split_at(sentence.find([' ', ':']).unwrap_or(sentence.len()));
    let plural = match verb {
        "is" => "are",
        "has" => "have",
        "does" => "do",
        "differs" | "fits" | "lacks" | "offers" | "runs" | "stops" | "waits" => {
            verb.strip_suffix('s').unwrap_or(verb)
        }
        other => other,
    };
    format!("{plural}{}", rest.replace("when it is empty", "when they are empty"))
}

/// The topologies of the existing nodes, by shape.
pub(crate) fn shapes(
    view: &ClusterView,
) -> anyhow::Result<BTreeMap<ShapeHash, Vec<&NodeTopology>>> {
    let mut shapes: BTreeMap<ShapeHash, Vec<&NodeTopology>> = BTreeMap::new();
    let there = view.node_topologies().filter(|(name, _)| !view.is_remembered(name));
    for (name, object) in there {
        let shape = view.topology(name).context("a node's graph is indexed with it")?.shape();
        shapes.entry(shape).or_default().push(object);
    }
    Ok(shapes)
}

/// The matrix of each shape, with the nodes that have it.
pub(crate) fn matrices(view: &ClusterView, options: MatrixOptions) -> anyhow::Result<String> {
    let shapes = shapes(view)?;
    let blocks: anyhow::Result<Vec<_>> =
        shapes.iter().map(|(shape, nodes)| shape_block(*shape, nodes, options)).collect();
    Ok(blocks?.join("\n"))
}

/// One shape: its nodes, and the matrix with the device names of the first node.
fn shape_block(
    shape: ShapeHash,
    nodes: &[&NodeTopology],
    options: MatrixOptions,
) -> anyhow::Result<String> {
    let names: Vec<_> =
        nodes.iter().map(|node| node.metadata.name.as_deref().unwrap_or_default()).collect();
    let first = nodes.first().context("a shape has a node")?;
    let topology = Topology::from_spec(&first.spec)?;
    let heading = match names.as_slice() {
        [name] => format!("Node {name} (shape {shape})"),
        names => format!("{} of shape {shape}", node_list(names)),
    };
    Ok(format!("{heading}\n\n{}", matrix_with(&topology, options)))
}

/// The texts, one per line.
pub(crate) fn lines(texts: impl Iterator<Item = String>) -> String {
    texts.fold(String::new(), |all, text| all + &text + "\n")
}

/// The columns of a terminal.
const COLUMNS: usize = 80;

/// A text in lines of at most 80 characters, where its words allow. What continues a line is indented
/// by two more. Rows of a `table` stay whole: they have two spaces between cells.
pub fn fitted(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(fitted_line).collect();
    lines.join("\n")
}

/// One line of a text.
fn fitted_line(line: &str) -> String {
    let words = line.trim_start_matches(' ');
    if line.chars().count() <= COLUMNS || words.contains("  ") {
        return line.to_owned();
    }
    let indent = " ".repeat(line.len() - words.len());
    let mut out = indent.clone();
    let mut width = indent.len();
    for (index, word) in words.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && width + 1 + length > COLUMNS {
            out.push('\n');
            out.push_str(&indent);
            out.push_str("  ");
            width = indent.len() + 2;
        } else if index > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out
}

/// `1 node`, `2 nodes`, `2 DeviceClasses`, `2 policies`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {}", plural(noun)) }
}

/// The plural of a noun.
fn plural(noun: &str) -> String {
    let ends_hard = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    let stem = noun.strip_suffix('y');
    match stem.filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u'])) {
        Some(stem) => format!("{stem}ies"),
        None if ends_hard => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// A time to the minute: `2026-11-26 02:14 UTC`.
pub(crate) fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Long names, such as UUIDs, by their beginnings.
pub(crate) struct Short {
    /// How many characters of each name are shown; `None` shows all.
    length: Option<usize>,
}

impl Short {
    /// The longest name that is shown whole, and the shortest beginning.
    const WHOLE_MAX: usize = 16;
    const BEGINNING: usize = 8;

    /// As short as these names can be told apart, unless they are to be shown whole.
    pub(crate) fn of<'n>(names: impl Iterator<Item = &'n str>, is_whole: bool) -> Self {
        let names: BTreeSet<Vec<char>> = names.map(|name| name.chars().collect()).collect();
        if is_whole || names.iter().all(|name| name.len() <= Self::WHOLE_MAX) {
            return Self { length: None };
        }
        let longest = names.iter().map(Vec::len).max().unwrap_or_default();
        let length = (Self::BEGINNING..longest).find(|length| {
            let beginnings: BTreeSet<&[char]> =
                names.iter().map(|name| name.get(..*length).unwrap_or(name)).collect();
            beginnings.len() == names.len()
        });
        Self { length }
    }

    pub(crate) fn name(&self, name: &str) -> String {
        match self.length {
            Some(length) if name.chars().count() > length => {
                name.chars().take(length).chain(['…']).collect()
            }
            _ => name.to_owned(),
        }
    }
}

/// A table with a heading; columns are as wide as their widest cell.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let widths = heading.iter().enumerate().map(|(column, name)| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).fold(name.len(), usize::max)
    });
    let widths: Vec<usize> = widths.collect();
    let mut out = aligned(heading.iter().copied(), &widths);
    for row in rows {
        out += &aligned(row.iter().map(String::as_str), &widths);
    }
    out
}

/// A line of a table.
fn aligned<'c>(cells: impl Iterator<Item = &'c str>, widths: &[usize]) -> String {
    let padded = cells.zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_as_short_as_they_can_be_told_apart() {
        let of = |names: &[&str], is_whole| {
            let short = Short::of(names.iter().copied(), is_whole);
            names.iter().map(|name| short.name(name)).collect::<Vec<_>>()
        };
        assert_eq!(of(&["fabric-a", "fabric-b"], false), ["fabric-a", "fabric-b"]);
        let uuids = ["c6c749e8-a38b-470e-8c94", "c6c749e8-b38b-470e-8c94", "x"];
        assert_eq!(of(&uuids[..1], false), ["c6c749e8…"]);
        assert_eq!(of(&uuids, false), ["c6c749e8-a…", "c6c749e8-b…", "x"]);
        assert_eq!(of(&uuids, true), uuids);
    }
}
