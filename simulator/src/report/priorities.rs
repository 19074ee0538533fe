//! Renders the comparison of who decides on preemption as a Markdown table.

use super::line;
use crate::priorities::{Outcome, Priorities};

/// A column: title, value, decimals.
type Column = (&'static str, fn(&Outcome) -> f64, usize);

const COLUMNS: [Column; 7] = [
    ("high: waiting, mean (h)", |it| it.high_wait_mean_h, 2),
    ("high: waiting, p99 (h)", |it| it.high_wait_p99_h, 2),
    ("others: from submission to end, mean (h)", |it| it.low_mean_h, 2),
    ("evicted jobs", |it| it.evictions, 0),
    ("of these in vain", |it| it.evictions_in_vain, 0),
    ("GPU hours lost", |it| it.gpu_hours_lost, 0),
    ("goodput (%)", |it| it.goodput * 100.0, 2),
];

/// The table of one load and share.
pub fn table(priorities: &Priorities) -> String {
    let mut text = head(priorities);
    line(&mut text, "who evicts", COLUMNS.iter().map(|(title, ..)| title));
    line(&mut text, "---", COLUMNS.iter().map(|_| "---:"));
    for (name, outcome) in &priorities.outcomes {
        let cells =
            COLUMNS.iter().map(|(_, value, decimals)| format!("{:.decimals$}", value(outcome)));
        line(&mut text, name, cells.collect::<Vec<_>>().iter());
    }
    text
}

fn head(priorities: &Priorities) -> String {
    let Priorities { load, nodes, jobs, high, checkpoint, replays, .. } = priorities;
    let load = load.map_or_else(|| "as traced".to_owned(), |load| format!("{:.0} %", load * 100.0));
    let checkpoint = checkpoint.map_or_else(
        || "jobs have no checkpoints".to_owned(),
        |minutes| format!("jobs have a checkpoint every {minutes} minutes"),
    );
    format!(
        "Load {load}, {:.0} % of the jobs have high priority: {jobs} jobs, {nodes} nodes; {checkpoint}; {replays} replays\n\n",
        high * 100.0
    )
}
