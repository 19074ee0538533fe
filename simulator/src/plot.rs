//! Draws the comparison as a chart: one panel per measure, with a group of bars per load.
//! It follows the reader's light or dark colour scheme.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::compare::Scene;
use crate::measures::Comparison;
use crate::policies::PolicyKind;
use crate::report::{ROWS, Row};

/// Pixels of a panel.
const PANEL: (u32, u32) = (430, 270);
/// Panels per row.
const COLUMNS: usize = 3;
/// Height of the title in pixels.
const TITLE: u32 = 34;
/// Width of a load's group of bars, where 1 is the distance between loads.
const GROUP: f64 = 0.8;
/// One colour per policy, distinguishable with colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; PolicyKind::ALL.len()] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
];

/// Dark colour scheme: swaps white and black.
const DARK: &str = r##"
<style>
@media (prefers-color-scheme: dark) {
  rect[fill="#FFFFFF"] { fill: #1b1b1f }
  text { fill: #d8d8d8 }
  line, polyline { stroke: #8c8c8c }
}
</style>"##;

/// The chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("failed to draw the chart: {0}")]
pub struct PlotError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the chart as SVG.
pub fn svg(title: &str, scenes: &[Scene], comparisons: &[Comparison]) -> Result<String, PlotError> {
    let mut text = String::new();
    draw(title, scenes, comparisons, &mut text).map_err(|error| PlotError(error.to_string()))?;
    // The style sheet must come before the drawn elements.
    let head = text.find('>').map_or(0, |end| end + 1);
    text.insert_str(head, DARK);
    Ok(text)
}

fn draw(
    title: &str,
    scenes: &[Scene],
    comparisons: &[Comparison],
    text: &mut String,
) -> Result<(), Box<dyn Error>> {
    let rows = ROWS.len().div_ceil(COLUMNS);
    let size = (PANEL.0 * u32::try_from(COLUMNS)?, PANEL.1 * u32::try_from(rows)? + TITLE);
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    root.fill(&WHITE)?;
    let body = root.titled(title, ("sans-serif", 20))?;
    let panels = body.split_evenly((rows, COLUMNS));
    for (row, panel) in ROWS.iter().zip(&panels) {
        bars(panel, row, scenes, comparisons)?;
    }
    if let Some(last) = panels.get(ROWS.len()) {
        legend(last)?;
    }
    root.present()?;
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a few bars")]
fn bars(
    panel: &Area<'_>,
    row: &Row,
    scenes: &[Scene],
    comparisons: &[Comparison],
) -> Result<(), Box<dyn Error>> {
    let all = comparisons.iter().flat_map(|it| &it.policies).map(|it| row.in_unit(it));
    let highest = all.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let groups = comparisons.len() as f64;
    let mut chart = ChartBuilder::on(panel)
        .caption(row.title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..groups, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * comparisons.len() + 1)
        .x_label_formatter(&|at: &f64| load_label(scenes, *at))
        .draw()?;
    for (group, comparison) in comparisons.iter().enumerate() {
        let width = GROUP / COLOURS.len() as f64;
        let start = group as f64 + (1.0 - GROUP) / 2.0;
        let policies = comparison.policies.iter().zip(COLOURS).enumerate();
        chart.draw_series(policies.map(|(index, (policy, colour))| {
            let left = start + index as f64 * width;
            let corners = [(left, 0.0), (left + width * 0.92, row.in_unit(policy))];
            Rectangle::new(corners, colour.filled())
        }))?;
    }
    Ok(())
}

/// The load of the scene whose bars have their middle here.
#[allow(clippy::cast_precision_loss, reason = "a few scenes")]
fn load_label(scenes: &[Scene], at: f64) -> String {
    let mut scenes = scenes.iter().enumerate();
    let here = scenes.find(|(index, _)| (*index as f64 + 0.5 - at).abs() < 0.01);
    let load = here.and_then(|(_, scene)| scene.load);
    load.map_or_else(String::new, |load| format!("{:.0} % load", load * 100.0))
}

fn legend(panel: &Area<'_>) -> Result<(), Box<dyn Error>> {
    for (index, (kind, colour)) in PolicyKind::ALL.into_iter().zip(COLOURS).enumerate() {
        let top = 60 + 34 * i32::try_from(index)?;
        panel.draw(&Rectangle::new([(70, top), (94, top + 16)], colour.filled()))?;
        panel.draw(&Text::new(kind.name(), (104, top), ("sans-serif", 16)))?;
    }
    Ok(())
}
