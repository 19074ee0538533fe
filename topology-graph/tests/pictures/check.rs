//! Finds faults in a picture. The boxes are those that usvg computes with DejaVu Sans, which is
//! wider than the sans-serif fonts of browsers.

use std::sync::{Arc, LazyLock};

use dejavu::sans;
use resvg::tiny_skia::{Pixmap, Rect, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Color, Group, Node, Options, Paint, Path, Text, TextChunk, Tree};

/// The maximum width of a picture.
const WIDTH_MAX: f32 = 1_200.0;
/// WCAG 2.2, success criterion 1.4.3, for text of normal size.
const CONTRAST_MIN: f64 = 4.5;
/// The tolerance at borders: half the width of their line.
const BORDER: f32 = 1.0;

static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(sans::regular().to_vec());
    fonts.load_font_data(sans::bold().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// Parses a picture with usvg.
pub(crate) fn parsed(svg: &str) -> Tree {
    let options = Options { fontdb: Arc::clone(&FONTS), ..Options::default() };
    Tree::from_str(svg, &options).expect("it is SVG")
}

/// Draws the picture as PNG.
pub(crate) fn png(tree: &Tree) -> Vec<u8> {
    let size = tree.size().to_int_size();
    let mut pixels = Pixmap::new(size.width(), size.height()).expect("it has a size");
    resvg::render(tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().expect("it is in memory")
}

/// A text with its position and the ID of its box.
pub(crate) struct Label {
    pub(crate) owner: String,
    pub(crate) text: String,
    at: Rect,
    colour: Color,
}

/// A box with its ID, in drawing order.
struct Shape {
    owner: String,
    at: Rect,
    colour: Color,
}

/// The elements of a picture.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) labels: Vec<Label>,
    shapes: Vec<Shape>,
    wires: Vec<Rect>,
}

impl Parts {
    pub(crate) fn new(tree: &Tree) -> Self {
        let mut parts = Self::default();
        parts.take(tree.root(), "");
        parts
    }

    fn take(&mut self, group: &Group, owner: &str) {
        let owner = if group.id().is_empty() { owner } else { group.id() };
        for node in group.children() {
            match node {
                Node::Group(group) => self.take(group, owner),
                Node::Path(path) => self.path(path, owner),
                Node::Text(text) => self.text(text, owner),
                Node::Image(_) => unreachable!("a picture has no image"),
            }
        }
    }

    fn path(&mut self, path: &Path, owner: &str) {
        match path.fill() {
            Some(fill) => self.shapes.push(Shape {
                owner: owner.to_owned(),
                at: path.abs_bounding_box(),
                colour: plain(fill.paint()),
            }),
            None => self.wires.extend(segments(path)),
        }
    }

    fn text(&mut self, text: &Text, owner: &str) {
        let span = text.chunks().iter().flat_map(TextChunk::spans).next();
        let fill = span.and_then(|span| span.fill()).expect("a text has a colour");
        self.labels.push(Label {
            owner: owner.to_owned(),
            text: text.chunks().iter().map(TextChunk::text).collect(),
            at: text.abs_bounding_box(),
            colour: plain(fill.paint()),
        });
    }

    /// The first box of an owner is its border.
    fn border(&self, owner: &str) -> Option<Rect> {
        self.shapes.iter().find(|shape| shape.owner == owner).map(|shape| shape.at)
    }

    /// The IDs of boxes, each once.
    pub(crate) fn owners(&self) -> Vec<&str> {
        let mut owners: Vec<&str> = self.shapes.iter().map(|shape| shape.owner.as_str()).collect();
        owners.dedup();
        owners
    }
}

/// The straight segments of a line, each as a rectangle without area.
fn segments(path: &Path) -> Vec<Rect> {
    let points = path.data().points();
    let between = points.windows(2).map(|ends| {
        let (a, b) = (ends[0], ends[1]);
        let slant = (a.x - b.x).abs().min((a.y - b.y).abs());
        assert!(slant < f32::EPSILON, "a line is slanted");
        Rect::from_ltrb(a.x.min(b.x), a.y.min(b.y), a.x.max(b.x), a.y.max(b.y)).expect("ordered")
    });
    between.collect()
}

fn plain(paint: &Paint) -> Color {
    match paint {
        Paint::Color(colour) => *colour,
        _ => unreachable!("a picture has plain colours only"),
    }
}

/// The faults of a picture, one per line.
pub(crate) fn faults(svg: &str) -> Vec<String> {
    let tree = parsed(svg);
    let parts = Parts::new(&tree);
    let mut faults = Vec::new();
    if tree.size().width() > WIDTH_MAX {
        faults.push(format!("{} pixels wide", tree.size().width()));
    }
    let drawn = svg.matches("<text").count();
    if parts.labels.len() != drawn {
        faults.push(format!("{} of {drawn} texts can be seen", parts.labels.len()));
    }
    let page = Rect::from_xywh(0.0, 0.0, tree.size().width(), tree.size().height());
    let page = page.expect("it has a size");
    for (index, label) in parts.labels.iter().enumerate() {
        faults.extend(of_label(&parts, page, label));
        let others = parts.labels[..index].iter().filter(|other| overlap(label.at, other.at));
        faults.extend(others.map(|other| format!("`{}` lies on `{}`", label.text, other.text)));
    }
    faults.extend(of_boxes(&parts, page));
    faults
}

fn of_label(parts: &Parts, page: Rect, label: &Label) -> Vec<String> {
    let Label { owner, text, at, colour } = label;
    let mut faults = Vec::new();
    if !contains(page, *at) {
        faults.push(format!("`{text}` leaves the page"));
    }
    let is_boxed = !owner.starts_with("legend");
    if is_boxed && !parts.border(owner).is_some_and(|border| contains(border, *at)) {
        faults.push(format!("`{text}` leaves its box {owner}"));
    }
    for shape in parts.shapes.iter().filter(|shape| overlap(shape.at, *at)) {
        if !contains(shape.at, *at) {
            faults.push(format!("`{text}` of {owner} crosses the border of {}", shape.owner));
        }
    }
    if parts.wires.iter().any(|wire| touches(*wire, *at)) {
        faults.push(format!("a line crosses `{text}` of {owner}"));
    }
    let ground = parts.shapes.iter().rev().find(|shape| overlap(shape.at, *at));
    let contrast = ground.map_or(1.0, |shape| contrast(shape.colour, *colour));
    if contrast < CONTRAST_MIN {
        faults.push(format!("`{text}` of {owner} has a contrast of {contrast:.1} only"));
    }
    faults
}

/// Boxes must be nested or apart, and no line may cross one.
fn of_boxes(parts: &Parts, page: Rect) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, shape) in parts.shapes.iter().enumerate() {
        if !contains(page, shape.at) {
            faults.push(format!("{} leaves the page", shape.owner));
        }
        for other in &parts.shapes[..index] {
            if overlap(shape.at, other.at) && !contains(other.at, shape.at) {
                faults.push(format!("{} lies on {}", shape.owner, other.owner));
            }
        }
    }
    for owner in parts.owners().into_iter().filter(|owner| owner.contains('-')) {
        let inner = parts.border(owner).and_then(|at| at.inset(BORDER, BORDER));
        if inner.is_some_and(|inner| parts.wires.iter().any(|wire| touches(*wire, inner))) {
            faults.push(format!("a line goes through {owner}"));
        }
    }
    faults
}

fn contains(outer: Rect, inner: Rect) -> bool {
    outer.left() <= inner.left()
        && outer.top() <= inner.top()
        && inner.right() <= outer.right()
        && inner.bottom() <= outer.bottom()
}

fn overlap(a: Rect, b: Rect) -> bool {
    a.left() < b.right() && b.left() < a.right() && a.top() < b.bottom() && b.top() < a.bottom()
}

/// A line has no area, so touching edges count.
fn touches(wire: Rect, at: Rect) -> bool {
    wire.left() <= at.right()
        && at.left() <= wire.right()
        && wire.top() <= at.bottom()
        && at.top() <= wire.bottom()
}

/// WCAG 2.2, "contrast ratio".
fn contrast(a: Color, b: Color) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn luminance(colour: Color) -> f64 {
    let linear = |channel: u8| {
        let channel = f64::from(channel) / 255.0;
        if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a page with these elements.
    fn picture(elements: &str) -> Vec<String> {
        faults(&format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='300' height='100' font-family='sans-serif' font-size='10'>\
             <rect width='300' height='100' fill='#fff'/>{elements}</svg>"
        ))
    }

    #[test]
    fn each_fault_is_found() {
        let boxed = "<g id='r-1'><rect x='10' y='10' width='60' height='20' fill='#eee'/>";
        for (elements, expected) in [
            (format!("{boxed}<text x='14' y='24'>fits</text></g>"), &[] as &[&str]),
            (
                format!("{boxed}<text x='14' y='24'>does not fit in there</text></g>"),
                &[
                    "`does not fit in there` leaves its box r-1",
                    "`does not fit in there` of r-1 crosses the border of r-1",
                ],
            ),
            (
                format!("{boxed}<text x='14' y='24'>on</text><text x='20' y='22'>off</text></g>"),
                &["`off` lies on `on`"],
            ),
            (
                format!("{boxed}<text x='14' y='24' fill='#bbb'>pale</text></g>"),
                &["`pale` of r-1 has a contrast of 1.7 only"],
            ),
            (
                format!(
                    "{boxed}<text x='14' y='24'>cut</text></g><polyline points='0,20 20,20' fill='none' stroke='#000'/>"
                ),
                &["a line crosses `cut` of r-1", "a line goes through r-1"],
            ),
            (
                format!(
                    "{boxed}</g><g id='r-2'><rect x='60' y='20' width='60' height='20' fill='#eee'/></g>"
                ),
                &["r-2 lies on r-1"],
            ),
            (
                "<g id='legend'><text x='280' y='24'>beyond</text></g>".to_owned(),
                &["`beyond` leaves the page", "`beyond` of legend crosses the border of "],
            ),
        ] {
            assert_eq!(picture(&elements), expected, "{elements}");
        }
    }
}
