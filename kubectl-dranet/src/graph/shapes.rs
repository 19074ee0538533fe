//! The topologies of all shapes of a cluster in one document.

use anyhow::Context as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use topology_graph::{Format, NodeTopology, ShapeHash, Theme, Topology, svg};

/// Pixels between two pictures, and above each picture for its title.
const GAP: u32 = 24;
/// Font size of a title in pixels.
const LETTER: u32 = 16;

type Shapes<'v> = BTreeMap<ShapeHash, Vec<&'v NodeTopology>>;

fn names<'v>(nodes: &[&'v NodeTopology]) -> Vec<&'v str> {
    nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect()
}

fn first(nodes: &[&NodeTopology]) -> anyhow::Result<Topology> {
    Ok(Topology::from_spec(&nodes.first().context("a shape has a node")?.spec)?)
}

/// All shapes with their nodes and the topology of the first node.
pub(super) fn json(shapes: &Shapes<'_>) -> anyhow::Result<String> {
    let all: anyhow::Result<Vec<Value>> = shapes
        .iter()
        .map(|(shape, nodes)| {
            let graph: Value = serde_json::from_str(&Format::Json.render(&first(nodes)?))?;
            Ok(json!({ "shape": shape.to_string(), "nodes": names(nodes), "graph": graph }))
        })
        .collect();
    Ok(serde_json::to_string_pretty(&json!({ "shapes": all? }))? + "\n")
}

/// The pictures of all shapes, one below the other, with the number of nodes of each.
pub(super) fn pictures(shapes: &Shapes<'_>, theme: Theme) -> anyhow::Result<String> {
    let (mut inner, mut width, mut height) = (String::new(), 0, 0);
    for (shape, nodes) in shapes {
        let picture = svg(&first(nodes)?, theme);
        let (wide, high) = (size(&picture, "width")?, size(&picture, "height")?);
        let heading = format!("{} of shape {shape}", crate::text::counted(nodes.len(), "node"));
        writeln!(
            inner,
            "<text x=\"{LETTER}\" y=\"{}\" font-size=\"{LETTER}\">{heading}</text>",
            height + LETTER
        )?;
        let placed = picture.replacen("<svg ", &format!("<svg y=\"{}\" ", height + GAP), 1);
        inner += &placed;
        width = width.max(wide);
        height += high + 2 * GAP;
    }
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"Helvetica,Arial,sans-serif\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{inner}</svg>\n"
    ))
}

/// The width or height of a picture's outer element.
fn size(picture: &str, side: &str) -> anyhow::Result<u32> {
    let (_, rest) = picture.split_once(&format!(" {side}=\"")).context("a picture has a size")?;
    let (pixels, _) = rest.split_once('"').context("an attribute ends")?;
    Ok(pixels.parse()?)
}
