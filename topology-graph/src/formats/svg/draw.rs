//! Writes a picture as SVG.

use std::fmt::Write;

use super::scene::{Block, Label, Scene, Shape, Wire};
use super::text::Style;
use super::theme::{Theme, style_sheet};

pub(super) fn draw(scene: &Scene, theme: Theme) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"Helvetica,Arial,sans-serif\">\n\
         <title>PCIe and NUMA topology</title>\n<style>{}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n",
        style_sheet(theme)
    );
    for panel in &scene.panels {
        block(&mut text, panel);
    }
    for Wire(points) in &scene.wires {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "<polyline class=\"wire\" points=\"{}\"/>", points.join(" "));
    }
    for each in &scene.blocks {
        block(&mut text, each);
    }
    text.push_str("</svg>\n");
    text
}

fn block(text: &mut String, block: &Block) {
    let id = if block.id.is_empty() { String::new() } else { format!(" id=\"{}\"", block.id) };
    let _ = write!(text, "<g{}>", id.replace([':', '.'], "-"));
    if !block.tip.is_empty() {
        let _ = write!(text, "<title>{}</title>", escape(&block.tip));
    }
    text.push('\n');
    for Shape { class, at, radius } in &block.shapes {
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{radius}\"/>",
            at.x, at.y, at.width, at.height
        );
    }
    for Label { class, style, x, baseline, text: words } in &block.labels {
        let bold = if *style == Style::Plain { "" } else { " font-weight=\"bold\"" };
        let _ = writeln!(
            text,
            "<text class=\"{class}\" x=\"{x}\" y=\"{baseline}\" font-size=\"{}\"{bold}>{}</text>",
            style.size(),
            escape(words)
        );
    }
    text.push_str("</g>\n");
}

fn escape(text: &str) -> String {
    let plain: String = text.chars().filter(|character| !character.is_control()).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
