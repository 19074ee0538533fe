//! Compares all policies on the same jobs, claims and cluster.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::args::SceneArgs;
use crate::claims::{Alignment, ClaimError, Claims, Placer};
use crate::cluster::{Cluster, pods};
use crate::communication::{Communication, PublishedBandwidths};
use crate::machine::{MachineError, SimulatedMachine};
use crate::measures::{Comparison, Measures};
use crate::policies::{Fgd, KubeScheduler, PolicyKind, RailWebhook, SchedulerExt, Strategy};
use crate::policy::Policy;
use crate::replay::{Draw, Record, replay};
use crate::trace::{Trace, TraceError};
use crate::workload::{Workload, nodes_for};

/// The policies cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A machine cannot be read.
    #[error(transparent)]
    SimulatedMachine(#[from] MachineError),
    /// A claim could not be planned or placed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The machines have GPUs of several drivers, but a claim can request only one
    /// driver's.
    #[error(
        "machines `{0}` and `{1}` have GPUs of different drivers; one claim cannot be for both"
    )]
    Drivers(String, String),
    /// No job of the trace fits on any fabric.
    #[error(
        "none of the {jobs} jobs fits on a fabric of {nodes} nodes; give more with --nodes or --fabric-nodes"
    )]
    NothingFits {
        /// Jobs of the trace.
        jobs: usize,
        /// Nodes of the largest fabric.
        nodes: usize,
    },
}

/// The claims, the cluster and the jobs for one load.
#[derive(Debug)]
pub struct Scene {
    /// The load, if one was given.
    pub load: Option<f64>,
    /// The claims of the pods.
    pub claims: Arc<Claims>,
    /// The idle cluster.
    pub cluster: Cluster,
    /// The jobs of each replay: the trace begun at equally spaced moments, the first at
    /// its own beginning.
    pub workloads: Vec<Workload>,
    /// The model of run times.
    pub communication: Communication,
}

/// The machines of these names.
pub fn machines(names: &[String]) -> Result<Vec<SimulatedMachine>, CompareError> {
    let machines: Vec<_> =
        names.iter().map(|name| SimulatedMachine::load(name)).collect::<Result<_, _>>()?;
    let first = machines.first();
    let other = machines.iter().find(|it| first.is_some_and(|one| one.gpu_driver != it.gpu_driver));
    match (first, other) {
        (Some(one), Some(other)) => {
            Err(CompareError::Drivers(one.name.clone(), other.name.clone()))
        }
        _ => Ok(machines),
    }
}

/// The claims of all pods of a trace.
pub fn claims(
    machines: Vec<SimulatedMachine>,
    trace: &Trace,
    alignment: Alignment,
) -> Result<Claims, ClaimError> {
    let claims = Claims::new(machines)?;
    let sizes: Vec<u32> = trace.mix().into_keys().flat_map(|gpus| pods(gpus, &claims)).collect();
    claims.plan(sizes, alignment)
}

impl Scene {
    /// The scene of a load.
    pub fn new(
        args: &SceneArgs,
        trace: &Trace,
        claims: &Arc<Claims>,
        load: Option<f64>,
    ) -> Result<Self, CompareError> {
        let machines = &claims.machines;
        #[allow(clippy::cast_precision_loss, reason = "a few machines")]
        let per_node =
            machines.iter().map(|it| f64::from(it.gpus)).sum::<f64>() / machines.len() as f64;
        let nodes = match (args.nodes, load) {
            (Some(nodes), _) => nodes as usize,
            (None, load) => nodes_for(trace, load.unwrap_or(1.0), per_node),
        };
        let cluster = Cluster::new(machines, nodes, args.fabric_nodes as usize);
        let cluster = match args.domain_nodes {
            Some(nodes) => cluster.with_domains(nodes as usize),
            None => cluster,
        };
        #[allow(clippy::cast_precision_loss, reason = "a few replays")]
        let begins = (0..args.repeats).map(|replay| replay as f64 / args.repeats as f64);
        let workloads: Vec<_> = begins
            .map(|begin| Workload::new(&trace.begun_at(begin), claims, &cluster, load))
            .collect();
        if workloads.iter().any(|workload| workload.tasks.is_empty()) {
            let nodes = nodes.div_ceil(cluster.fabrics().max(1));
            return Err(CompareError::NothingFits { jobs: trace.jobs.len(), nodes });
        }
        let published =
            machines.first().map_or(PublishedBandwidths::Gb300, PublishedBandwidths::new);
        let bandwidths = args.bandwidths.unwrap_or(published).bandwidths();
        let communication = Communication { share: args.communication_share, bandwidths };
        Ok(Self { load, claims: Arc::clone(claims), cluster, workloads, communication })
    }

    /// A policy for this scene.
    pub fn policy(&self, kind: PolicyKind) -> Box<dyn Policy> {
        match kind {
            PolicyKind::KubeScheduler => {
                Box::new(KubeScheduler { strategy: Strategy::LeastAllocated })
            }
            PolicyKind::MostAllocated => {
                Box::new(KubeScheduler { strategy: Strategy::MostAllocated })
            }
            PolicyKind::Fgd => Box::new(Fgd::new(self.workloads.iter().flat_map(Workload::pods))),
            PolicyKind::SchedulerExt => Box::new(SchedulerExt::new(Arc::clone(&self.claims))),
            PolicyKind::WithoutDomains => {
                Box::new(SchedulerExt::new(Arc::clone(&self.claims)).without_domains())
            }
            PolicyKind::RailWebhook => Box::new(RailWebhook),
        }
    }

    /// Replays one of the workloads under a policy. The placer must be for these claims.
    pub fn replay(
        &self,
        workload: &Workload,
        kind: PolicyKind,
        seed: u64,
        placer: &mut Placer,
    ) -> Result<Record, ClaimError> {
        let mut policy = self.policy(kind);
        let mut draw = Draw::new(seed);
        let cluster = self.cluster.clone();
        replay(workload, cluster, &mut *policy, &mut draw, placer, self.communication, None)
    }

    /// The number of jobs that are too large for any fabric.
    pub fn too_large(&self) -> usize {
        self.workloads.first().map_or(0, |workload| workload.too_large)
    }
}

/// Watches a comparison, and may end it early.
pub trait Observer: Sync {
    /// Called after each replay with the number of finished replays and of all.
    fn ended(&self, replays: usize, all: usize);
    /// Returns false if no further replay should begin. Running replays finish.
    fn goes_on(&self) -> bool;
}

/// An observer that shows nothing and sets no limit.
#[derive(Clone, Copy, Debug)]
pub struct NoLimit;

impl Observer for NoLimit {
    fn ended(&self, _: usize, _: usize) {}

    fn goes_on(&self) -> bool {
        true
    }
}

/// Replays all scenes under every policy, on all processors. The scenes must have the same claims,
/// equally many workloads, and all of them NVLink domains or none. The n-th replay of a scene uses the n-th seed from `seed`. If the
/// observer ends the comparison early, only the replays that finished for all scenes and policies
/// are compared: at least one of each.
pub fn compare(
    scenes: &[Scene],
    seed: u64,
    observer: &dyn Observer,
) -> Result<Vec<Comparison>, ClaimError> {
    let Some(first) = scenes.first() else { return Ok(Vec::new()) };
    let kinds: Vec<PolicyKind> = PolicyKind::compared(first.cluster.domains() > 0).collect();
    let runs: Vec<Run<'_>> = scenes
        .iter()
        .flat_map(|scene| kinds.iter().map(move |kind| Run { scene, placer: 0, kind: *kind }))
        .collect();
    let replays = replays(&runs, std::slice::from_ref(&first.claims), seed, observer)?;
    Ok(replays.chunks(kinds.len()).map(|policies| Comparison::new(policies.to_vec())).collect())
}

/// A scene under a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) scene: &'a Scene,
    /// Which of the claims it uses.
    pub(crate) placer: usize,
    pub(crate) kind: PolicyKind,
}

/// The measures of all replays of each run; see [`compare`]. At least one run is needed.
pub(crate) fn replays(
    runs: &[Run<'_>],
    claims: &[Arc<Claims>],
    seed: u64,
    observer: &dyn Observer,
) -> Result<Vec<Vec<Measures>>, ClaimError> {
    let order = spread(runs.first().map_or(0, |run| run.scene.workloads.len()));
    let questions: Vec<_> =
        order.iter().flat_map(|&index| runs.iter().map(move |run| (index, run))).collect();
    let measures = in_parallel(
        &questions,
        runs.len(),
        observer,
        || claims.iter().map(|claims| Placer::new(Arc::clone(claims))).collect::<Vec<_>>(),
        |placers: &mut Vec<Placer>, (index, run): &(usize, &Run<'_>)| {
            let workload = &run.scene.workloads[*index];
            let seed = seed.wrapping_add(*index as u64);
            let record = run.scene.replay(workload, run.kind, seed, &mut placers[run.placer])?;
            Ok(Measures::new(run.kind.name(), workload, &record, run.scene.cluster.domains() > 0))
        },
    )?;
    // The order of execution must not change the result.
    let mut rounds: Vec<_> = order.into_iter().zip(measures.chunks_exact(runs.len())).collect();
    rounds.sort_by_key(|(index, _)| *index);
    Ok((0..runs.len())
        .map(|run| rounds.iter().map(|(_, measures)| measures[run].clone()).collect())
        .collect())
}

/// The numbers below `count` in the order of the van der Corput sequence: any first few of them
/// are spread evenly over the range.
pub(crate) fn spread(count: usize) -> Vec<usize> {
    let bits = count.next_power_of_two().trailing_zeros();
    (0..count.next_power_of_two())
        .map(|index| index.reverse_bits().checked_shr(usize::BITS - bits).unwrap_or(0))
        .filter(|index| *index < count)
        .collect()
}

/// Computes answers in the order of the questions. Each thread has its own memory. The first
/// `at_least` questions are always answered, the others until the observer ends it.
pub(crate) fn in_parallel<Q: Sync, A: Send, M>(
    questions: &[Q],
    at_least: usize,
    observer: &dyn Observer,
    memory: impl Fn() -> M + Sync,
    answer: impl Fn(&mut M, &Q) -> Result<A, ClaimError> + Sync,
) -> Result<Vec<A>, ClaimError> {
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let (mut memory, mut answers) = (memory(), Vec::new());
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(question) = questions.get(index)
            && (index < at_least || observer.goes_on())
        {
            answers.push((index, answer(&mut memory, question)));
            observer.ended(ended.fetch_add(1, Ordering::Relaxed) + 1, questions.len());
        }
        answers
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut answers: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().expect("a replay panicked"));
        joined.flatten().collect()
    });
    answers.sort_by_key(|(index, _)| *index);
    // Another thread may have begun a later question before the end.
    let without_gap = answers.into_iter().enumerate().take_while(|(n, (index, _))| n == index);
    without_gap.map(|(_, (_, answer))| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_first_few_are_spread_evenly() {
        assert_eq!(spread(8), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(spread(6), [0, 4, 2, 1, 5, 3]);
        assert_eq!((spread(1), spread(0)), (vec![0], vec![]));
    }
}
