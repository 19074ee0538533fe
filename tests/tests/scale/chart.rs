//! Draws CPU, memory and pods over the time of the load.

use std::{collections::BTreeSet, error::Error};

use plotters::{coord::Shift, prelude::*};

use super::usage::Sample;

/// Pixels of the three panels together.
const SIZE: (u32, u32) = (900, 840);
/// Distinguishable with colour blindness (Okabe and Ito): one for each program.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x8a, 0x82, 0x20),
    RGBColor(0x33, 0x33, 0x33),
];
/// Seconds over which CPU time is averaged.
const WINDOW: usize = 10;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A name and points of time and value.
type Line = (String, Vec<(f64, f64)>);

/// The chart as SVG.
pub(crate) fn svg(samples: &[Sample]) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut text = String::new();
    draw(samples, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(samples: &[Sample], text: &mut String) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.split_evenly((3, 1));
    lines(&panels[0], "CPU, cores", &programs(samples, cores))?;
    lines(&panels[1], "Memory of the largest process, MB", &programs(samples, memory))?;
    lines(&panels[2], "Pods", &pods(samples))?;
    root.present()?;
    Ok(())
}

fn lines(panel: &Area<'_>, title: &str, all: &[Line]) -> Result<(), Box<dyn Error>> {
    let points = || all.iter().flat_map(|(_, points)| points);
    let end = points().map(|(at, _)| *at).fold(1.0, f64::max);
    let highest = points().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..end * 1.3, 0.0..highest * 1.05)?;
    chart.configure_mesh().disable_x_mesh().x_label_formatter(&|at| format!("{at:.0} s")).draw()?;
    for ((name, points), colour) in all.iter().zip(COLOURS.into_iter().cycle()) {
        chart
            .draw_series([PathElement::new(points.as_slice(), colour.stroke_width(2))])?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().border_style(WHITE).draw()?;
    Ok(())
}

/// A line for each program.
fn programs(samples: &[Sample], value: fn(&[Sample], usize, &str) -> Option<f64>) -> Vec<Line> {
    let names: BTreeSet<&String> =
        samples.iter().flat_map(|sample| sample.programs.keys()).collect();
    let line = |name: &String| {
        let points = (0..samples.len()).filter_map(|index| {
            Some((samples[index].at.as_secs_f64(), value(samples, index, name)?))
        });
        (name.clone(), points.collect())
    };
    names.into_iter().map(line).collect()
}

fn cores(samples: &[Sample], index: usize, program: &str) -> Option<f64> {
    let (before, now) = (&samples[index.checked_sub(WINDOW)?], &samples[index]);
    let used = now.programs.get(program)?.cpu.saturating_sub(before.programs.get(program)?.cpu);
    Some(used.as_secs_f64() / now.at.saturating_sub(before.at).as_secs_f64())
}

fn memory(samples: &[Sample], index: usize, program: &str) -> Option<f64> {
    Some(tests::figures::megabytes(samples[index].programs.get(program)?.memory))
}

#[expect(clippy::cast_precision_loss, reason = "thousands of pods")]
fn pods(samples: &[Sample]) -> Vec<Line> {
    let line = |name: &str, value: fn(&Sample) -> usize| {
        let points = samples.iter().map(|sample| (sample.at.as_secs_f64(), value(sample) as f64));
        (name.to_owned(), points.collect())
    };
    vec![
        line("bound", |sample| sample.pods.bound),
        line("without a node", |sample| sample.pods.waiting),
    ]
}
