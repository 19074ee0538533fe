//! The elements of a picture, as values. All lengths are in pixels.

use super::text::Style;

/// A picture, in the order in which it is drawn.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Background panels.
    pub(super) panels: Vec<Block>,
    pub(super) wires: Vec<Wire>,
    pub(super) blocks: Vec<Block>,
}

/// A box with its text; the first shape is its border.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) id: String,
    /// The tooltip.
    pub(super) tip: String,
    pub(super) shapes: Vec<Shape>,
    pub(super) labels: Vec<Label>,
}

/// A filled rectangle.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) class: &'static str,
    pub(super) at: Rect,
    /// The radius of its corners.
    pub(super) radius: u32,
}

/// A rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rect {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// One line of text.
#[derive(Debug)]
pub(super) struct Label {
    pub(super) class: &'static str,
    pub(super) style: Style,
    pub(super) x: u32,
    /// The position of the text's baseline.
    pub(super) baseline: u32,
    pub(super) text: String,
}

/// A line through these points.
#[derive(Debug)]
pub(super) struct Wire(pub(super) Vec<(u32, u32)>);

impl Block {
    /// The width from 0 to its right end.
    pub(super) fn width(&self) -> u32 {
        let shapes = self.shapes.iter().map(|shape| shape.at.x + shape.at.width);
        let labels = self.labels.iter().map(|label| label.x + label.style.width(&label.text));
        shapes.chain(labels).max().unwrap_or(0)
    }

    /// Moves the box right and down.
    pub(super) fn shift(&mut self, right: u32, down: u32) {
        for shape in &mut self.shapes {
            shape.at.x += right;
            shape.at.y += down;
        }
        for label in &mut self.labels {
            label.x += right;
            label.baseline += down;
        }
    }
}
