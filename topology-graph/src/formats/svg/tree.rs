//! The layout of a tree: its upper branches side by side; below, where there is no room for that,
//! each branch as a list under its port.

use super::super::outline::{DeviceKind, Node, OutlineDevice, Port, PortKind};
use super::scene::{Block, Label, Rect, Scene, Shape, Wire};
use super::text::Style;
use super::theme::{badge_class, pair_class};

/// The gap between columns.
pub(super) const COLUMN_GAP: u32 = 16;
/// The minimum column width: a device's address and badge fit side by side.
pub(super) const COLUMN_MIN: u32 = 209;
const PORT_HEIGHT: u32 = 22;
const DEVICE_HEIGHT: u32 = 42;
/// The gap between a port and children that are side by side.
const LEVEL_GAP: u32 = 18;
/// The gap between a port and children in a list, and between the entries.
const LIST_GAP: u32 = 8;
/// The maximum indent of a list below its port.
const INDENT_MAX: u32 = 18;
/// The minimum width of the deepest list in a column.
const LIST_WIDTH_MIN: u32 = 177;
/// The position of a list's line, from the left of its port.
const SPINE: u32 = 8;
const PADDING: u32 = 8;
const BADGE_HEIGHT: u32 = 15;
/// The radius of the round ends of a port's box.
const CORNER: u32 = PORT_HEIGHT / 2;
/// The width of the coloured edge of a paired device.
const EDGE: u32 = 5;

/// Draws trees into a picture.
pub(super) struct Trees<'s> {
    pub(super) scene: &'s mut Scene,
    /// The prefix of the ids of this row's boxes.
    pub(super) prefix: String,
    /// The width of a column.
    pub(super) column: u32,
}

/// The position of a vertex.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    /// The position where a line from above meets it.
    pub(super) anchor: u32,
    /// The bottom of its subtree.
    pub(super) bottom: u32,
}

/// The number of columns of a tree whose upper `levels` are side by side.
pub(super) fn columns(node: &Node, levels: usize) -> usize {
    match (node.children(), levels) {
        ([], _) | (_, 0) => 1,
        (children, levels) => children.iter().map(|child| columns(child, levels - 1)).sum(),
    }
}

/// The number of levels.
pub(super) fn depth(node: &Node) -> usize {
    node.children().iter().map(|child| depth(child) + 1).max().unwrap_or(0)
}

/// The height of a tree drawn as a list.
pub(super) fn list_height(node: &Node) -> u32 {
    match node {
        Node::Device(_) => DEVICE_HEIGHT,
        Node::Port(port) => {
            let below = port.children.iter().map(|child| LIST_GAP + list_height(child));
            PORT_HEIGHT + below.sum::<u32>()
        }
    }
}

/// The maximum nesting of lists in a tree.
fn lists(node: &Node) -> u32 {
    let below = node.children().iter().map(lists).max().unwrap_or(0);
    below + u32::from(node.children().len() > 1)
}

impl Trees<'_> {
    /// Draws a tree whose upper `levels` are side by side.
    pub(super) fn place(&mut self, node: &Node, x: u32, y: u32, levels: usize) -> Placed {
        let Node::Port(port) = node else { return self.list(node, x, y) };
        if levels == 0 || port.children.is_empty() {
            return self.list(node, x, y);
        }
        let (mut left, top) = (x, y + PORT_HEIGHT + LEVEL_GAP);
        let mut placed = Vec::new();
        for child in &port.children {
            placed.push(self.place(child, left, top, levels - 1));
            left += self.span(columns(child, levels - 1)) + COLUMN_GAP;
        }
        let anchors = || placed.iter().map(|child| child.anchor);
        let middle = anchors().min().unwrap_or(x).midpoint(anchors().max().unwrap_or(x));
        let width = port_width(port).min(self.column);
        let room = left - COLUMN_GAP - x;
        let at = middle.saturating_sub(width / 2).clamp(x, x + room - width);
        self.port(port, at, y, self.column);
        // A single child keeps its line straight, even if that is not the middle.
        let anchor = middle.clamp(at + CORNER, at + width - CORNER);
        let bus = y + PORT_HEIGHT + LEVEL_GAP / 2;
        for child in anchors() {
            let points = [(anchor, y + PORT_HEIGHT), (anchor, bus), (child, bus), (child, top)];
            self.scene.wires.push(Wire(points.into()));
        }
        Placed { anchor, bottom: placed.iter().map(|child| child.bottom).max().unwrap_or(top) }
    }

    /// The width of this number of columns.
    pub(super) fn span(&self, columns: usize) -> u32 {
        let columns = u32::try_from(columns).unwrap_or(u32::MAX);
        (columns * (self.column + COLUMN_GAP)).saturating_sub(COLUMN_GAP)
    }

    /// Draws a tree in one column.
    pub(super) fn list(&mut self, node: &Node, x: u32, y: u32) -> Placed {
        let room = self.column.saturating_sub(LIST_WIDTH_MIN);
        let indent = (room / lists(node).max(1)).min(INDENT_MAX);
        self.hang(node, x, y, self.column, indent)
    }

    fn hang(&mut self, node: &Node, x: u32, y: u32, width: u32, indent: u32) -> Placed {
        let port = match node {
            Node::Device(device) => return self.device(device, x, y, width),
            Node::Port(port) => port,
        };
        let anchor = self.port(port, x, y, width);
        let is_list = port.children.len() > 1;
        let (shift, spine) =
            if is_list { (indent, x + SPINE.min(indent / 2)) } else { (0, x + SPINE) };
        let mut bottom = y + PORT_HEIGHT;
        for child in &port.children {
            let top = bottom + LIST_GAP;
            let middle =
                top + if matches!(child, Node::Port(_)) { PORT_HEIGHT } else { DEVICE_HEIGHT } / 2;
            let points = if is_list {
                vec![(spine, y + PORT_HEIGHT), (spine, middle), (x + shift, middle)]
            } else {
                vec![(spine, y + PORT_HEIGHT), (spine, top)]
            };
            self.scene.wires.push(Wire(points));
            bottom = self.hang(child, x + shift, top, width - shift, indent).bottom;
        }
        Placed { anchor, bottom }
    }

    /// Draws a port without its children; returns the position where a line from above meets it.
    fn port(&mut self, port: &Port, x: u32, y: u32, room: u32) -> u32 {
        let width = port_width(port).min(room);
        let label = port.label();
        let is_switch = port.kind == PortKind::Switch;
        let text = Label {
            class: if is_switch { "strong" } else { "soft" },
            style: Style::Plain,
            x: x + PADDING,
            baseline: y + 15,
            text: Style::Plain.fit(&label, width - 2 * PADDING),
        };
        let shape = Shape {
            class: if is_switch { "switch" } else { "bridge" },
            at: Rect { x, y, width, height: PORT_HEIGHT },
            radius: if is_switch { 4 } else { PORT_HEIGHT / 2 },
        };
        let id = format!("{}-{}", self.prefix, port.place);
        self.scene.blocks.push(Block { id, tip: label, shapes: vec![shape], labels: vec![text] });
        x + width / 2
    }

    fn device(&mut self, device: &OutlineDevice, x: u32, y: u32, width: u32) -> Placed {
        let at = Rect { x, y, width, height: DEVICE_HEIGHT };
        let mut shapes = vec![Shape { class: device_class(device.kind), at, radius: 5 }];
        if let Some(group) = device.pair_group {
            let at = Rect { x: x + 3, y: y + 5, width: EDGE, height: DEVICE_HEIGHT - 10 };
            shapes.push(Shape { class: pair_class(group), at, radius: 2 });
        }
        let (left, right) = (x + EDGE + PADDING, x + width - PADDING);
        let mut labels = names(device, left, right, y + 17);
        let mut end = right;
        if let Some((shape, label)) = badge(device, right, y + 23) {
            end = shape.at.x - PADDING;
            shapes.push(shape);
            labels.push(label);
        }
        labels.push(Label {
            class: "soft",
            style: Style::Plain,
            x: left,
            baseline: y + 34,
            text: Style::Plain.fit(&device.address.to_string(), end.saturating_sub(left)),
        });
        let id = format!("{}-{}", self.prefix, device.address);
        self.scene.blocks.push(Block { id, tip: tip(device), shapes, labels });
        Placed { anchor: x + width / 2, bottom: y + DEVICE_HEIGHT }
    }
}

fn port_width(port: &Port) -> u32 {
    Style::Plain.width(&port.label()) + 2 * PADDING
}

fn device_class(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Gpu => "gpu",
        DeviceKind::Nic | DeviceKind::DataPath => "nic",
        DeviceKind::Nvme => "nvme",
    }
}

/// The name, with the device's other name beside it.
fn names(device: &OutlineDevice, left: u32, right: u32, baseline: u32) -> Vec<Label> {
    let text = Style::Name.fit(&device.name, right - left);
    let next = left + Style::Name.width(&text) + PADDING;
    let name = Label { class: "strong", style: Style::Name, x: left, baseline, text };
    let known_as = device.known_as.as_ref().filter(|_| next < right);
    let known_as = known_as.map(|known_as| Label {
        class: "soft",
        style: Style::Plain,
        x: next,
        baseline,
        text: model(known_as, right - next),
    });
    [name].into_iter().chain(known_as).collect()
}

/// A device's other name; without the vendor if there is too little room.
fn model(known_as: &str, room: u32) -> String {
    let is_too_wide = Style::Plain.width(known_as) > room;
    let short = known_as.strip_prefix("NVIDIA ").filter(|_| is_too_wide);
    Style::Plain.fit(short.unwrap_or(known_as), room)
}

/// `NODE GPU0` on the path's colour, at the right end.
fn badge(device: &OutlineDevice, right: u32, y: u32) -> Option<(Shape, Label)> {
    let relation = device.relation.as_ref()?;
    let words = [Some(relation.path.to_string()), relation.gpu.clone()];
    let text = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let x = right.saturating_sub(badge_width(&text));
    Some(badge_at(badge_class(relation.path), text, x, y))
}

/// The width of a badge.
pub(super) fn badge_width(text: &str) -> u32 {
    Style::Badge.width(text) + PADDING
}

/// A badge.
pub(super) fn badge_at(class: &'static str, text: String, x: u32, y: u32) -> (Shape, Label) {
    let width = badge_width(&text);
    let at = Rect { x, y, width, height: BADGE_HEIGHT };
    let (x, baseline) = (x + PADDING / 2, y + 11);
    let label = Label { class: "on-badge", style: Style::Badge, x, baseline, text };
    (Shape { class, at, radius: 3 }, label)
}

/// Everything known about a device, in one line.
fn tip(device: &OutlineDevice) -> String {
    let known_as = device.known_as.clone();
    let relation = device.relation.as_ref().map(|relation| match &relation.gpu {
        Some(gpu) => format!("{} to {gpu}", relation.path),
        None => relation.path.to_string(),
    });
    let words = [Some(device.name.clone()), known_as, Some(device.address.to_string()), relation];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
