//! The boxes above and the legend below the rows of a picture.

use std::collections::BTreeSet;

use super::super::outline::{Node, OutlineDevice, Row};
use super::scene::{Block, Label, Rect, Scene, Shape};
use super::text::Style;
use super::theme::{badge_class, pair_class};
use super::tree::{badge_at, badge_width};
use crate::PathKind;

/// The gap between boxes below each other.
const GAP: u32 = 12;
const PADDING: u32 = 14;
const LINE: u32 = 17;
/// The gap between entries of the legend.
const ENTRY_GAP: u32 = 22;
const SWATCH: u32 = 5;

/// The position of the next box.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
}

impl Flow {
    /// Moves below a box of this height.
    pub(super) fn down(&mut self, height: u32) {
        self.y += height + GAP;
    }
}

/// Draws the box of a GPU mesh.
pub(super) fn fabric(scene: &mut Scene, flow: &mut Flow, name: &str, text: &str) {
    let left = flow.x + PADDING + Style::Title.width(name) + PADDING;
    let room = (flow.x + flow.width).saturating_sub(left + PADDING);
    let lines = wrapped(text, room);
    let first = flow.y + 21;
    let title = Label {
        class: "strong",
        style: Style::Title,
        x: flow.x + PADDING,
        baseline: first,
        text: name.to_owned(),
    };
    let baselines = (first..).step_by(17);
    let lines = lines.into_iter().zip(baselines).map(|(text, baseline)| Label {
        class: "soft",
        style: Style::Plain,
        x: left,
        baseline,
        text,
    });
    let labels: Vec<Label> = [title].into_iter().chain(lines).collect();
    let height = labels.last().map_or(first, |label| label.baseline) + 11 - flow.y;
    let at = Rect { x: flow.x, y: flow.y, width: flow.width, height };
    scene.panels.push(Block {
        id: format!("fabric{}", scene.panels.len()),
        tip: format!("{name}: {text}"),
        shapes: vec![Shape { class: "fabric", at, radius: 8 }],
        labels,
    });
    flow.down(height);
}

/// Wraps text at word boundaries; cuts words that are too long.
fn wrapped(text: &str, room: u32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let longer = lines.last().map(|line| format!("{line} {word}"));
        match (longer.filter(|line| Style::Plain.width(line) <= room), lines.last_mut()) {
            (Some(longer), Some(line)) => *line = longer,
            _ => lines.push(Style::Plain.fit(word, room)),
        }
    }
    lines
}

/// Draws the legend: the path kinds in the picture, from near to far, and the meaning of the edge
/// colours.
pub(super) fn legend(scene: &mut Scene, flow: &mut Flow, rows: &[Row]) {
    let roots = rows.iter().flat_map(|row| &row.roots);
    let devices: Vec<&OutlineDevice> = roots.flat_map(Node::devices).collect();
    let relations = devices.iter().filter_map(|device| device.relation.as_ref());
    let paths: BTreeSet<PathKind> = relations.map(|relation| relation.path).collect();
    let groups: BTreeSet<usize> = devices.iter().filter_map(|device| device.pair_group).collect();
    let mut entries: Vec<Block> = paths.into_iter().map(word).collect();
    if !groups.is_empty() {
        entries.push(colours(groups.len()));
    }
    if rows.is_empty() {
        entries.push(note("no GPU, NIC or NVMe controller found", 0));
    }
    let (mut x, right) = (flow.x, flow.x + flow.width);
    for (index, mut entry) in entries.into_iter().enumerate() {
        entry.id = format!("legend{index}");
        let width = entry.width();
        if x > flow.x && x + width > right {
            x = flow.x;
            flow.y += LINE + 6;
        }
        entry.shift(x, flow.y);
        x += width + ENTRY_GAP;
        scene.blocks.push(entry);
    }
    flow.y += LINE + GAP;
}

/// The badge of a path kind with its meaning.
fn word(path: PathKind) -> Block {
    let word = path.to_string();
    let mut entry = note(&meaning(path), badge_width(&word) + 6);
    let (shape, label) = badge_at(badge_class(path), word, 0, 1);
    entry.shapes.push(shape);
    entry.labels.push(label);
    entry
}

fn colours(groups: usize) -> Block {
    let shown = u32::try_from(groups.min(4)).unwrap_or(0);
    let mut entry =
        note("same colour: a GPU and the NICs paired with it", shown * (SWATCH + 3) + 4);
    entry.shapes = (0..groups.min(4))
        .zip((0..).step_by(8))
        .map(|(group, x)| Shape {
            class: pair_class(group),
            at: Rect { x, y: 0, width: SWATCH, height: LINE },
            radius: 2,
        })
        .collect();
    entry
}

/// A line of text with this distance from the left.
fn note(text: &str, x: u32) -> Block {
    let label =
        Label { class: "soft", style: Style::Plain, x, baseline: 12, text: text.to_owned() };
    Block { labels: vec![label], ..Block::default() }
}

/// The path kind in few words.
fn meaning(path: PathKind) -> String {
    match path {
        PathKind::NvLink(links) => return format!("{links} NVLinks to every other GPU"),
        PathKind::Same => "the device itself",
        PathKind::Xgmi => "XGMI links to every other GPU",
        PathKind::Pix => "at most one PCIe bridge",
        PathKind::Pxb => "several PCIe bridges",
        PathKind::Phb => "through a host bridge",
        PathKind::Node => "through host bridges of one NUMA node",
        PathKind::Sys => "between NUMA nodes",
        PathKind::Unknown => "unknown",
    }
    .to_owned()
}
