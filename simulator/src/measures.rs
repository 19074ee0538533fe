//! The measures by which policies are compared.

use std::collections::BTreeMap;

use serde::Serialize;
use topology_graph::PathKind;

use crate::replay::Record;
use crate::workload::{MILLIS, Millis, Workload};

/// Seconds per hour.
pub const SECONDS_PER_HOUR: f64 = 3600.0;

/// The measures of one policy; times in seconds, shares from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measures {
    /// The policy.
    pub name: String,
    /// Average waiting time of jobs.
    pub wait_mean_s: f64,
    /// 99th percentile of the waiting time of jobs.
    pub wait_p99_s: f64,
    /// The share of pods with a whole machine, including gangs, that start at their first
    /// attempt; 1 if there are none.
    pub first_try_8gpu: f64,
    /// The share of GPUs per kind of path to their NIC.
    pub pairs: BTreeMap<String, f64>,
    /// The share of all GPU time, up to the last submission, in which a GPU is idle while
    /// a job waits.
    pub idle_gpu_share_while_waiting: f64,
    /// Average run time of jobs.
    pub job_mean_s: f64,
    /// Average run time of jobs that take less than a whole machine; 0 if there are none.
    pub part_job_mean_s: f64,
    /// Hours of GPUs that all jobs take.
    pub gpu_hours: f64,
    /// The share of jobs with several pods whose pods are all in one NVLink domain, 1 if there are none;
    /// absent if nodes have no domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gangs_in_one_domain: Option<f64>,
}

/// A comparison of policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Averages over all replays for each policy, `scheduler-ext` last.
    pub policies: Vec<Measures>,
    /// The replays of each policy. Equal indices mean the same jobs and seed.
    #[serde(skip)]
    pub replays: Vec<Vec<Measures>>,
}

/// The difference of one policy from another in a measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Relative to the other policy's average.
    pub mean: f64,
    /// Its standard error, from the differences between paired replays.
    pub error: f64,
}

impl Comparison {
    /// The averages of the replays of each policy.
    pub fn new(replays: Vec<Vec<Measures>>) -> Self {
        let policies = replays.iter().filter_map(|replays| Measures::average(replays)).collect();
        Self { policies, replays }
    }

    /// Number of replays of each policy that are averaged.
    pub fn replays(&self) -> u64 {
        self.replays.first().map_or(0, |replays| replays.len() as u64)
    }

    /// The difference of one policy from another, by index; `None` with fewer than two
    /// replays, or if the other's average is zero.
    pub fn difference(
        &self,
        policy: usize,
        from: usize,
        value: fn(&Measures) -> f64,
    ) -> Option<Difference> {
        let (ours, theirs) = (self.replays.get(from)?, self.replays.get(policy)?);
        #[allow(clippy::cast_precision_loss, reason = "a few replays")]
        let count = ours.len() as f64;
        let average = ours.iter().map(value).sum::<f64>() / count;
        if ours.len() < 2 || ours.len() != theirs.len() || average == 0.0 {
            return None;
        }
        let pairs = ours.iter().zip(theirs);
        let more: Vec<f64> = pairs.map(|(ours, theirs)| value(theirs) - value(ours)).collect();
        let mean = more.iter().sum::<f64>() / count;
        let squares = more.iter().map(|more| (more - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1.0) / count).sqrt();
        Some(Difference { mean: mean / average, error: error / average })
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn share(part: u128, of: u128) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Measures {
    /// The measures of one replay on a cluster with or without NVLink domains.
    pub fn new(name: &str, workload: &Workload, record: &Record, has_domains: bool) -> Self {
        let runs = &record.runs;
        let mut waits: Vec<Millis> = runs.iter().map(|run| run.waited).collect();
        waits.sort_unstable();
        let largest = workload.pods().max().unwrap_or(0);
        let (mut first, mut whole) = (0, 0);
        for (task, run) in workload.tasks.iter().zip(runs) {
            let pods = task.pods.iter().filter(|gpus| **gpus == largest).count() as u128;
            whole += pods;
            first += if run.at_first_try { pods } else { 0 };
        }
        let jobs = workload.tasks.iter().zip(runs);
        let parts = jobs.clone().filter(|(task, _)| task.gpus < largest).map(|(_, run)| run.ran);
        let gpu_time: u128 =
            jobs.map(|(task, run)| u128::from(task.gpus) * u128::from(run.ran)).sum();
        let all: u64 = record.pairs.values().sum();
        let pairs = record.pairs.iter();
        let pairs = pairs.map(|(path, count)| (*path, share((*count).into(), all.into())));
        Self {
            name: name.to_owned(),
            wait_mean_s: mean(&waits),
            wait_p99_s: seconds(percentile(&waits, 99)),
            first_try_8gpu: if whole == 0 { 1.0 } else { share(first, whole) },
            pairs: pairs.map(|(path, share): (PathKind, f64)| (path.to_string(), share)).collect(),
            idle_gpu_share_while_waiting: share(record.idle_while_waiting, record.gpu_time),
            job_mean_s: mean(&runs.iter().map(|run| run.ran).collect::<Vec<_>>()),
            part_job_mean_s: mean(&parts.collect::<Vec<_>>()),
            gpu_hours: share(gpu_time, 1) / MILLIS / SECONDS_PER_HOUR,
            gangs_in_one_domain: has_domains.then(|| match record.gangs {
                0 => 1.0,
                gangs => share(record.gangs_in_one_domain.into(), gangs.into()),
            }),
        }
    }

    /// The averages of the measures of several replays.
    pub fn average(replays: &[Self]) -> Option<Self> {
        #[allow(clippy::cast_precision_loss, reason = "a few replays")]
        let count = replays.len() as f64;
        let average = |of: fn(&Self) -> f64| replays.iter().map(of).sum::<f64>() / count;
        let mut pairs: BTreeMap<String, f64> = BTreeMap::new();
        for (path, share) in replays.iter().flat_map(|replay| &replay.pairs) {
            *pairs.entry(path.clone()).or_default() += share / count;
        }
        Some(Self {
            name: replays.first()?.name.clone(),
            wait_mean_s: average(|it| it.wait_mean_s),
            wait_p99_s: average(|it| it.wait_p99_s),
            first_try_8gpu: average(|it| it.first_try_8gpu),
            pairs,
            idle_gpu_share_while_waiting: average(|it| it.idle_gpu_share_while_waiting),
            job_mean_s: average(|it| it.job_mean_s),
            part_job_mean_s: average(|it| it.part_job_mean_s),
            gpu_hours: average(|it| it.gpu_hours),
            gangs_in_one_domain: replays
                .first()?
                .gangs_in_one_domain
                .map(|_| average(|it| it.gangs_in_one_domain.unwrap_or_default())),
        })
    }
}

/// The smallest value that at least this percentage of values does not exceed; 0 if there
/// are none.
pub(crate) fn percentile(sorted: &[Millis], percent: usize) -> Millis {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1).and_then(|index| sorted.get(index)).copied().unwrap_or(0)
}

#[allow(clippy::cast_precision_loss, reason = "years at most")]
pub(crate) fn seconds(time: Millis) -> f64 {
    time as f64 / MILLIS
}

pub(crate) fn mean(times: &[Millis]) -> f64 {
    let sum: u128 = times.iter().map(|time| u128::from(*time)).sum();
    share(sum, times.len() as u128) / MILLIS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_difference_is_that_of_pairs() {
        let replay = |wait_mean_s| Measures {
            name: String::new(),
            wait_mean_s,
            wait_p99_s: 0.0,
            first_try_8gpu: 0.0,
            pairs: BTreeMap::new(),
            idle_gpu_share_while_waiting: 0.0,
            job_mean_s: 0.0,
            part_job_mean_s: 0.0,
            gpu_hours: 0.0,
            gangs_in_one_domain: None,
        };
        let of = |waits: [f64; 3]| waits.map(replay).to_vec();
        // Only differences within a pair of replays count, not differences between
        // replays.
        let comparison =
            Comparison::new(vec![of([100.0, 200.0, 300.0]), of([101.0, 202.0, 303.0])]);
        let difference = comparison.difference(1, 0, |it| it.wait_mean_s).unwrap();
        assert!((difference.mean - 0.01).abs() < 1e-12, "{difference:?}");
        assert!((difference.error - (1.0_f64 / 3.0).sqrt() / 200.0).abs() < 1e-12);
        assert_eq!(comparison.difference(1, 0, |it| it.wait_p99_s), None);
    }

    #[test]
    fn percentiles_are_values_of_the_list() {
        let hundred: Vec<Millis> = (1..=100).collect();
        assert_eq!((percentile(&hundred, 99), percentile(&hundred, 100)), (99, 100));
        assert_eq!((percentile(&[5], 99), percentile(&[], 99)), (5, 0));
    }
}
