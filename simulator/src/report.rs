//! Renders the comparison as a Markdown table, and finds the rows that `scheduler-ext`
//! does not win.

pub mod priorities;
pub mod ways;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::compare::Scene;
use crate::measures::{Comparison, Measures};
use crate::policies::PolicyKind;

/// Relative differences up to this are ties.
pub const TIE: f64 = 0.005;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The measure and its unit.
    pub title: &'static str,
    /// Whether a larger value is better.
    pub more_is_better: bool,
    /// Reads the value of a policy.
    pub value: fn(&Measures) -> f64,
    decimals: usize,
    /// 100 for percentages.
    factor: f64,
}

/// The rows, without those of the path classes.
pub const ROWS: [Row; 5] = [
    row("waiting, mean (s)", false, |it| it.wait_mean_s, (0, 1.0)),
    row("waiting, p99 (s)", false, |it| it.wait_p99_s, (0, 1.0)),
    row("8-GPU pods placed at first try (%)", true, |it| it.first_try_8gpu, (1, 100.0)),
    row("GPUs idle while a job waits (%)", false, |it| it.idle_gpu_share_while_waiting, (2, 100.0)),
    row("job duration, mean (s)", false, |it| it.job_mean_s, (0, 1.0)),
];

/// The row of clusters with NVLink domains. No policy is judged by it: domains are not asked for.
const DOMAINS: Row = row(
    "gangs within one NVLink domain (%)",
    true,
    |it| it.gangs_in_one_domain.unwrap_or_default(),
    (1, 100.0),
);

const fn row(
    title: &'static str,
    more_is_better: bool,
    value: fn(&Measures) -> f64,
    (decimals, factor): (usize, f64),
) -> Row {
    Row { title, more_is_better, value, decimals, factor }
}

impl Row {
    /// The policies, by index, that beat the policy `ours` by more than a tie.
    fn ahead(self, comparison: &Comparison, ours: usize) -> impl Iterator<Item = usize> {
        let own = (self.value)(&comparison.policies[ours]);
        let values = comparison.policies.iter().map(self.value).enumerate();
        let ahead = values.filter(move |(_, other)| {
            if self.more_is_better { own < other * (1.0 - TIE) } else { own > other * (1.0 + TIE) }
        });
        ahead.map(|(policy, _)| policy)
    }

    /// Whether a policy differs from the policy `ours` by more than twice the standard error; false if
    /// that is unknown.
    fn is_beyond_chance(&self, comparison: &Comparison, policy: usize, ours: usize) -> bool {
        let difference = comparison.difference(policy, ours, self.value);
        difference.is_some_and(|it| it.mean.abs() > 2.0 * it.error)
    }

    /// The value in the title's unit.
    pub fn in_unit(&self, measures: &Measures) -> f64 {
        (self.value)(measures) * self.factor
    }

    /// The value of a policy, and its difference from `scheduler-ext` in percent, with
    /// the standard error.
    fn text(&self, comparison: &Comparison, policy: usize) -> String {
        let value = self.in_unit(&comparison.policies[policy]);
        let mut text = format!("{value:.*}", self.decimals);
        let ours =
            comparison.policies.iter().position(|it| it.name == PolicyKind::SchedulerExt.name());
        let from = ours.filter(|ours| *ours != policy);
        if let Some(more) = from.and_then(|ours| comparison.difference(policy, ours, self.value)) {
            let (mean, error) = (more.mean * 100.0, more.error * 100.0);
            write!(text, " ({mean:+.1} ± {error:.1})").expect("a String");
        }
        text
    }
}

/// The table of a scene.
pub fn table(scene: &Scene, comparison: &Comparison) -> String {
    let mut text = head(scene);
    let names = comparison.policies.iter().map(|it| it.name.as_str());
    line(&mut text, "", names);
    line(&mut text, "---", comparison.policies.iter().map(|_| "---:"));
    let has_domains = comparison.policies.iter().any(|it| it.gangs_in_one_domain.is_some());
    for row in ROWS.iter().chain(has_domains.then_some(&DOMAINS)) {
        let policies = 0..comparison.policies.len();
        line(&mut text, row.title, policies.map(|policy| row.text(comparison, policy)));
    }
    let paths: BTreeSet<&String> =
        comparison.policies.iter().flat_map(|it| it.pairs.keys()).collect();
    for path in paths {
        let shares = comparison.policies.iter().map(|it| it.pairs.get(path).copied());
        let values = shares.map(|share| format!("{:.1}", share.unwrap_or(0.0) * 100.0));
        line(&mut text, &format!("GPU–NIC pairs at {path} (%)"), values);
    }
    text
}

fn head(scene: &Scene) -> String {
    let load =
        scene.load.map_or_else(|| "as traced".to_owned(), |load| format!("{:.0} %", load * 100.0));
    let (nodes, fabrics) = (scene.cluster.nodes.len(), scene.cluster.fabrics());
    let jobs = scene.workloads.first().map_or(0, |workload| workload.tasks.len());
    let mut text = format!("Load {load}: {jobs} jobs, {nodes} nodes on {fabrics} fabrics");
    let left_out = scene.too_large();
    if left_out > 0 {
        write!(text, ", {left_out} jobs left out that no fabric can hold").expect("a String");
    }
    text.push_str("\n\n");
    text
}

fn line(text: &mut String, title: &str, values: impl Iterator<Item = impl AsRef<str>>) {
    write!(text, "| {title} |").expect("a String");
    for value in values {
        write!(text, " {} |", value.as_ref()).expect("a String");
    }
    text.push('\n');
}

/// Titles of the rows in which another policy is ahead of `scheduler-ext` by more than a tie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// By more than twice the standard error.
    pub beyond_chance: Vec<&'static str>,
    /// By less, or with too few replays for a standard error.
    pub perhaps_chance: Vec<&'static str>,
}

impl Losses {
    /// A sentence for each kind of loss that there is.
    pub fn sentences(&self) -> Vec<String> {
        let kinds = [
            ("by more than twice the standard error", &self.beyond_chance),
            ("which may be chance", &self.perhaps_chance),
        ];
        let lost = kinds.into_iter().filter(|(_, titles)| !titles.is_empty());
        lost.map(|(kind, titles)| {
            format!("another policy is ahead of scheduler-ext, {kind}, in: {}", titles.join("; "))
        })
        .collect()
    }
}

/// The rows in which another policy is ahead of `scheduler-ext`; none if it is not compared.
pub fn losses(comparison: &Comparison) -> Losses {
    let mut losses = Losses::default();
    let mut policies = comparison.policies.iter();
    let Some(ours) = policies.position(|it| it.name == PolicyKind::SchedulerExt.name()) else {
        return losses;
    };
    for row in &ROWS {
        let ahead: Vec<usize> = row.ahead(comparison, ours).collect();
        if ahead.iter().any(|policy| row.is_beyond_chance(comparison, *policy, ours)) {
            losses.beyond_chance.push(row.title);
        } else if !ahead.is_empty() {
            losses.perhaps_chance.push(row.title);
        }
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn measures(name: &str, wait: f64) -> Measures {
        Measures {
            name: name.to_owned(),
            wait_mean_s: wait,
            wait_p99_s: 1.0,
            first_try_8gpu: 0.5,
            pairs: BTreeMap::new(),
            idle_gpu_share_while_waiting: 0.1,
            job_mean_s: 10.0,
            part_job_mean_s: 10.0,
            gpu_hours: 1.0,
            gangs_in_one_domain: None,
        }
    }

    #[test]
    fn half_a_percent_is_a_tie() {
        let comparison = |wait| {
            Comparison::new(vec![
                vec![measures("FGD", 1000.0)],
                vec![measures("scheduler-ext", wait)],
            ])
        };
        assert_eq!(losses(&comparison(1004.0)), Losses::default());
        assert_eq!(losses(&comparison(1006.0)).perhaps_chance, ["waiting, mean (s)"]);
    }

    #[test]
    fn a_loss_within_twice_the_standard_error_may_be_chance() {
        let cases = [
            (
                [1010.0, 1011.0, 1012.0],
                "by more than twice the standard error, in: waiting, mean (s)",
            ),
            ([900.0, 1000.0, 1133.0], "which may be chance, in: waiting, mean (s)"),
            ([900.0, 1000.0, 1100.0], ""),
        ];
        for (own, expected) in cases {
            let replays = own.map(|wait| measures("scheduler-ext", wait)).to_vec();
            let other = [1000.0; 3].map(|wait| measures("FGD", wait)).to_vec();
            let told = losses(&Comparison::new(vec![other, replays])).sentences().join("\n");
            let told = told.trim_start_matches("another policy is ahead of scheduler-ext, ");
            assert_eq!(told, expected, "{own:?}");
        }
    }
}
