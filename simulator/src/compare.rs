//! Compares all policies on the same jobs, claims and cluster.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::args::Args;
use crate::claims::{Alignment, ClaimError, Claims, Placer};
use crate::cluster::{Cluster, pods};
use crate::communication::{Communication, Published};
use crate::machine::{Machine, MachineError};
use crate::measures::{Comparison, Measures};
use crate::policies::{Fgd, Kind, KubeScheduler, SchedulerExt, Strategy};
use crate::policy::Policy;
use crate::replay::{Draw, Record, replay};
use crate::trace::{Trace, TraceError};
use crate::workload::{Workload, nodes_for};

/// PCI vendor id of AMD.
const PCI_VENDOR_AMD: u16 = 0x1002;

/// The policies cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A machine cannot be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
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
pub fn machines(names: &[String]) -> Result<Vec<Machine>, CompareError> {
    let machines: Vec<_> =
        names.iter().map(|name| Machine::load(name)).collect::<Result<_, _>>()?;
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
    machines: Vec<Machine>,
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
        args: &Args,
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
        #[allow(clippy::cast_precision_loss, reason = "a few replays")]
        let begin = |replay: u64| replay as f64 / args.repeats as f64;
        let workloads: Vec<_> = (0..args.repeats)
            .map(|replay| Workload::new(&trace.begun_at(begin(replay)), claims, &cluster, load))
            .collect();
        if workloads.iter().any(|workload| workload.tasks.is_empty()) {
            let nodes = nodes.div_ceil(cluster.fabrics().max(1));
            return Err(CompareError::NothingFits { jobs: trace.jobs.len(), nodes });
        }
        let is_amd = machines.iter().any(|it| it.gpu_driver.pci_vendor == PCI_VENDOR_AMD);
        let published = if is_amd { Published::Mi300x } else { Published::Gb300 };
        let bandwidths = args.bandwidths.unwrap_or(published).bandwidths();
        let communication = Communication { share: args.communication_share, bandwidths };
        Ok(Self { load, claims: Arc::clone(claims), cluster, workloads, communication })
    }

    /// A policy for this scene.
    pub fn policy(&self, kind: Kind) -> Box<dyn Policy> {
        match kind {
            Kind::KubeScheduler => Box::new(KubeScheduler { strategy: Strategy::LeastAllocated }),
            Kind::MostAllocated => Box::new(KubeScheduler { strategy: Strategy::MostAllocated }),
            Kind::Fgd => Box::new(Fgd::new(self.workloads.iter().flat_map(Workload::pods))),
            Kind::SchedulerExt => Box::new(SchedulerExt::new(Arc::clone(&self.claims))),
        }
    }

    /// Replays one of the workloads under a policy. The placer must be for these claims.
    pub fn replay(
        &self,
        workload: &Workload,
        kind: Kind,
        seed: u64,
        placer: &mut Placer,
    ) -> Result<Record, ClaimError> {
        let mut policy = self.policy(kind);
        let mut draw = Draw::new(seed);
        let cluster = self.cluster.clone();
        replay(workload, cluster, &mut *policy, &mut draw, placer, self.communication)
    }

    /// The number of jobs that are too large for any fabric.
    pub fn too_large(&self) -> usize {
        self.workloads.first().map_or(0, |workload| workload.too_large)
    }
}

/// Replays all scenes, which must have the same claims, under every policy, on all
/// processors. The replays of a scene use consecutive seeds from `seed`.
pub fn compare(scenes: &[Scene], seed: u64) -> Result<Vec<Comparison>, ClaimError> {
    let runs: Vec<_> = scenes
        .iter()
        .flat_map(|scene| Kind::ALL.iter().map(move |kind| (scene, *kind)))
        .flat_map(|(scene, kind)| {
            let seeds = (0..).map(move |index| seed.wrapping_add(index));
            scene.workloads.iter().zip(seeds).map(move |(it, seed)| (scene, kind, it, seed))
        })
        .collect();
    let Some(claims) = scenes.first().map(|scene| &scene.claims) else { return Ok(Vec::new()) };
    let placer = || Placer::new(Arc::clone(claims));
    let measures = in_parallel(&runs, placer, |placer, (scene, kind, workload, seed)| {
        let record = scene.replay(workload, *kind, *seed, placer)?;
        Ok(Measures::of(kind.name(), workload, &record))
    })?;
    let mut measures = measures.as_slice();
    let mut comparisons = Vec::new();
    for scene in scenes {
        let (own, others) = measures.split_at(Kind::ALL.len() * scene.workloads.len());
        let replays = own.chunks(scene.workloads.len()).map(<[_]>::to_vec).collect();
        comparisons.push(Comparison::of(replays));
        measures = others;
    }
    Ok(comparisons)
}

/// Computes answers in the order of the questions. Each thread has its own memory.
fn in_parallel<Q: Sync, A: Send, M>(
    questions: &[Q],
    memory: impl Fn() -> M + Sync,
    answer: impl Fn(&mut M, &Q) -> Result<A, ClaimError> + Sync,
) -> Result<Vec<A>, ClaimError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut memory, mut answers) = (memory(), Vec::new());
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(question) = questions.get(index)
        {
            answers.push((index, answer(&mut memory, question)));
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
    answers.into_iter().map(|(_, answer)| answer).collect()
}
