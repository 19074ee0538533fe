//! Renders the comparison of ways as a Markdown table.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::line;
use crate::measures::{Measures, SECONDS_PER_HOUR};
use crate::ways::{Way, Ways};

/// A column with a difference from the last way.
struct Column {
    title: &'static str,
    value: fn(&Measures) -> f64,
    decimals: usize,
}

const COLUMNS: [Column; 4] = [
    Column {
        title: "run of jobs below one machine, mean (h)",
        value: |it| it.part_job_mean_s / SECONDS_PER_HOUR,
        decimals: 2,
    },
    Column {
        title: "run of all jobs, mean (h)",
        value: |it| it.job_mean_s / SECONDS_PER_HOUR,
        decimals: 2,
    },
    Column { title: "GPU hours", value: |it| it.gpu_hours, decimals: 0 },
    Column {
        title: "waiting, mean (h)",
        value: |it| it.wait_mean_s / SECONDS_PER_HOUR,
        decimals: 2,
    },
];

/// The table of one load.
pub fn table(ways: &Ways) -> String {
    let mut text = head(ways);
    let paths: BTreeSet<&String> = ways.ways.iter().flat_map(|it| it.pairs.keys()).collect();
    let titles = COLUMNS.iter().map(|column| column.title.to_owned());
    let titles = titles.chain(paths.iter().map(|path| format!("{path} (%)")));
    let titles: Vec<String> = titles.chain(["never start (%)".to_owned()]).collect();
    line(&mut text, "GPUs and NICs by", titles.iter());
    line(&mut text, "---", titles.iter().map(|_| "---:"));
    for (index, way) in Way::ALL.iter().enumerate() {
        line(&mut text, way.name(), row(ways, index, &paths).iter());
    }
    text
}

fn row(ways: &Ways, index: usize, paths: &BTreeSet<&String>) -> Vec<String> {
    let measures = &ways.ways[index];
    let never = ways.never_start[index];
    let starts = never < 1.0;
    let cells =
        COLUMNS.iter().map(|column| if starts { cell(ways, index, column) } else { none() });
    let cells = cells.chain(paths.iter().map(|path| {
        let share = measures.pairs.get(*path).copied().unwrap_or(0.0);
        if starts { format!("{:.1}", share * 100.0) } else { none() }
    }));
    cells.chain([format!("{:.1}", never * 100.0)]).collect()
}

/// The cell of a way by which no job starts.
fn none() -> String {
    "–".to_owned()
}

/// The value, and its difference from the last way in percent, with the standard error. There is
/// no difference if some jobs never start, since the averages are of other jobs then.
fn cell(ways: &Ways, index: usize, column: &Column) -> String {
    let mut text = format!("{:.*}", column.decimals, (column.value)(&ways.ways[index]));
    let last = Way::ALL.len() - 1;
    let is_comparable = index != last && ways.never_start[index] == 0.0;
    let difference = ways.comparison.difference(index, last, column.value);
    if let Some(more) = difference.filter(|_| is_comparable) {
        let (mean, error) = (more.mean * 100.0, more.error * 100.0);
        write!(text, " ({mean:+.1} ± {error:.1})").expect("a String");
    }
    text
}

fn head(ways: &Ways) -> String {
    let load =
        ways.load.map_or_else(|| "as traced".to_owned(), |load| format!("{:.0} %", load * 100.0));
    let share = ways.communication_share * 100.0;
    format!(
        "{}, load {load}: {} jobs, {} nodes; {share:.0} % of a job's time is communication\n\n",
        ways.machine, ways.jobs, ways.nodes
    )
}
