//! Compares who decides on preemption, on jobs of two priorities.

use std::sync::Arc;

use serde::Serialize;

use crate::args::PreemptionArgs;
use crate::claims::{Alignment, ClaimError, Placer};
use crate::compare::{CompareError, Observer, Scene, claims, in_parallel, machines, spread};
use crate::decider::{Decider, Preempting};
use crate::measures::{SECONDS_PER_HOUR, mean, percentile, seconds, share};
use crate::policies::PolicyKind;
use crate::preemption::{ByCounts, ByPreemptor};
use crate::replay::{Draw, Record, replay};
use crate::trace::Trace;
use crate::workload::{MILLIS, Millis, Workload};

const MINUTE: Millis = 60_000;
/// How far the oracle sees.
const FORESIGHT: Millis = 60 * MINUTE;

/// Who decides on preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody leaves.
    Nobody,
    /// kube-scheduler, as for device plugins.
    KubeScheduler,
    /// preemptor.
    Preemptor,
    /// preemptor that knows which jobs end within an hour, and lets the others wait for them.
    Oracle,
}

impl Who {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nobody, Self::KubeScheduler, Self::Preemptor, Self::Oracle];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nobody => "no preemption",
            Self::KubeScheduler => "kube-scheduler, device plugins",
            Self::Preemptor => "preemptor",
            Self::Oracle => "preemptor that sees one hour ahead",
        }
    }

    fn decider(self, scene: &Scene) -> Result<Option<Box<dyn Decider>>, ClaimError> {
        Ok(match self {
            Self::Nobody => None,
            Self::KubeScheduler => Some(Box::new(ByCounts)),
            Self::Preemptor | Self::Oracle => {
                Some(Box::new(ByPreemptor::new(&scene.claims, &scene.cluster)?))
            }
        })
    }

    /// Replays jobs on an idle cluster.
    pub fn replay(
        self,
        scene: &Scene,
        workload: &Workload,
        (seed, checkpoint): (u64, Option<Millis>),
        placer: &mut Placer,
    ) -> Result<Record, ClaimError> {
        let mut policy = scene.policy(PolicyKind::SchedulerExt);
        let mut decider = self.decider(scene)?;
        let foresight = if self == Self::Oracle { FORESIGHT } else { 0 };
        let preempting = decider.as_deref_mut();
        let preempting = preempting.map(|decider| Preempting { decider, foresight, checkpoint });
        let (cluster, mut draw) = (scene.cluster.clone(), Draw::new(seed));
        let communication = scene.communication;
        replay(workload, cluster, &mut *policy, &mut draw, placer, communication, preempting)
    }
}

/// What preemption gives and costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Average waiting time of jobs of high priority, in hours.
    pub high_wait_mean_h: f64,
    /// 99th percentile of the waiting time of jobs of high priority, in hours.
    pub high_wait_p99_h: f64,
    /// Average time from the submission to the end of the other jobs, in hours.
    pub low_mean_h: f64,
    /// How often a job was evicted.
    pub evictions: f64,
    /// Those for a job that did not start then.
    pub evictions_in_vain: f64,
    /// GPU hours of evicted jobs that are run again.
    pub gpu_hours_lost: f64,
    /// The share of all GPU time, up to the last submission, in which a GPU did work that counts.
    pub goodput: f64,
}

impl Outcome {
    /// The outcome of a replay.
    #[allow(clippy::cast_precision_loss, reason = "numbers of evictions are far below 2^52")]
    pub fn new(workload: &Workload, record: &Record) -> Self {
        let jobs = workload.tasks.iter().zip(&record.runs);
        let (high, low): (Vec<_>, Vec<_>) = jobs.partition(|(task, _)| task.priority > 0);
        let mut waits: Vec<Millis> = high.iter().map(|(_, run)| run.waited).collect();
        waits.sort_unstable();
        let low: Vec<Millis> = low.iter().map(|(_, run)| run.waited + run.ran).collect();
        Self {
            high_wait_mean_h: mean(&waits) / SECONDS_PER_HOUR,
            high_wait_p99_h: seconds(percentile(&waits, 99)) / SECONDS_PER_HOUR,
            low_mean_h: mean(&low) / SECONDS_PER_HOUR,
            evictions: record.evictions as f64,
            evictions_in_vain: record.evictions_in_vain as f64,
            gpu_hours_lost: share(record.lost, 1) / MILLIS / SECONDS_PER_HOUR,
            goodput: share(record.useful, record.gpu_time),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a few replays")]
    fn average(all: &[Self]) -> Self {
        let average = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        Self {
            high_wait_mean_h: average(|it| it.high_wait_mean_h),
            high_wait_p99_h: average(|it| it.high_wait_p99_h),
            low_mean_h: average(|it| it.low_mean_h),
            evictions: average(|it| it.evictions),
            evictions_in_vain: average(|it| it.evictions_in_vain),
            gpu_hours_lost: average(|it| it.gpu_hours_lost),
            goodput: average(|it| it.goodput),
        }
    }
}

/// The outcomes at one load with one share of high priority.
#[derive(Clone, Debug, Serialize)]
pub struct Priorities {
    /// The load, if one was given.
    pub load: Option<f64>,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of jobs.
    pub jobs: usize,
    /// Share of the jobs that have high priority, from 0 to 1.
    pub high: f64,
    /// Minutes between two checkpoints of a job, if it has any.
    pub checkpoint: Option<u64>,
    /// Number of replays that are averaged.
    pub replays: usize,
    /// Averages, with who decides.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

/// Compares who decides, for each load and share.
pub fn compare_priorities(
    args: &PreemptionArgs,
    trace: &Trace,
    observer: &dyn Observer,
) -> Result<Vec<Priorities>, CompareError> {
    let PreemptionArgs { scene: of_scene, checkpoint, .. } = args;
    let claims = Arc::new(claims(machines(&of_scene.machine)?, trace, Alignment::Preferred)?);
    let loads = of_scene.loads().into_iter();
    let scenes = loads.map(|load| Scene::new(of_scene, trace, &claims, load));
    let scenes: Vec<Scene> = scenes.collect::<Result<_, _>>()?;
    let shares = args.shares();
    let cases: Vec<(&Scene, f64)> =
        scenes.iter().flat_map(|scene| shares.iter().map(move |high| (scene, *high))).collect();
    let runs: Vec<_> = cases.iter().flat_map(|case| Who::ALL.map(|who| (*case, who))).collect();
    let order = spread(scenes.first().map_or(0, |scene| scene.workloads.len()));
    let questions: Vec<_> =
        order.into_iter().flat_map(|index| runs.iter().map(move |run| (index, *run))).collect();
    let outcomes = in_parallel(
        &questions,
        runs.len(),
        observer,
        || Placer::new(Arc::clone(&claims)),
        |placer, (index, ((scene, high), who))| {
            let seed = of_scene.seed.wrapping_add(*index as u64);
            let workload = scene.workloads[*index].clone().with_high_priority(*high, seed);
            let checkpoint = checkpoint.map(|minutes| minutes * MINUTE);
            let record = who.replay(scene, &workload, (seed, checkpoint), placer)?;
            Ok(Outcome::new(&workload, &record))
        },
    )?;
    let rounds: Vec<&[Outcome]> = outcomes.chunks_exact(runs.len()).collect();
    let averages = (0..runs.len()).map(|run| {
        Outcome::average(&rounds.iter().map(|round| round[run].clone()).collect::<Vec<_>>())
    });
    let averages: Vec<Outcome> = averages.collect();
    let priorities = cases.iter().zip(averages.chunks_exact(Who::ALL.len()));
    let priorities = priorities.map(|((scene, high), of_case)| Priorities {
        load: scene.load,
        nodes: scene.cluster.nodes.len(),
        jobs: scene.workloads.first().map_or(0, |workload| workload.tasks.len()),
        high: *high,
        checkpoint: *checkpoint,
        replays: rounds.len(),
        outcomes: Who::ALL.map(Who::name).into_iter().zip(of_case.iter().cloned()).collect(),
    });
    Ok(priorities.collect())
}
