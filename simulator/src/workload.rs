//! Converts a trace into work for a cluster: stretches its times to a load, and splits
//! its jobs into pods.

use std::sync::Arc;

use fastrand::Rng;

use crate::claims::{ClaimError, Claims, Placer, Shape};
use crate::cluster::{Cluster, pods};
use crate::trace::Trace;

/// Milliseconds, the unit of time in a replay.
pub type Millis = u64;

/// The priority of jobs that may evict others, which have priority 0.
pub const HIGH: i32 = 1000;

/// Milliseconds per second.
pub const MILLIS: f64 = 1000.0;

/// A job as it is scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// When it is submitted.
    pub submitted: Millis,
    /// How long it runs with aligned devices.
    pub duration: Millis,
    /// Its GPUs.
    pub gpus: u32,
    /// The GPUs of each pod. Several pods form a gang: they start together on one fabric.
    pub pods: Vec<u32>,
    /// The job's number, by which its user chooses one of several claims.
    pub number: usize,
    /// Its priority.
    pub priority: i32,
}

impl Task {
    /// What a pod of this job asks for.
    pub fn shape(&self, gpus: u32, claims: &Claims) -> Shape {
        Shape { gpus, template: self.number % claims.templates(gpus) }
    }

    /// What all of its pods ask for. Jobs of one number of GPUs differ only in the claim of their
    /// last pod: the others take whole machines, for which there is one claim.
    pub fn demand(&self, claims: &Claims) -> Shape {
        let last = self.pods.last().map_or(0, |gpus| self.shape(*gpus, claims).template);
        Shape { gpus: self.gpus, template: last }
    }
}

/// The jobs to replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The jobs in the order of their submission.
    pub tasks: Vec<Task>,
    /// The number of jobs that are too large for any fabric, which are left out.
    pub too_large: usize,
    /// The number of jobs whose pods get no devices even on an idle cluster, which are left out.
    pub never: usize,
}

/// The number of nodes on which a trace produces this load: its GPU seconds per second
/// between the first and the last submission, divided by the GPUs per node.
pub fn nodes_for(trace: &Trace, load: f64, gpus_per_node: f64) -> usize {
    let nodes = demand(trace) / load / gpus_per_node;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let nodes = nodes.ceil() as usize;
    nodes.max(1)
}

/// GPUs that the jobs need on average.
fn demand(trace: &Trace) -> f64 {
    let span = trace.span();
    // If all jobs are submitted at once, they produce the load while the longest one
    // runs.
    let longest = trace.jobs.iter().map(|job| job.duration).fold(0.0, f64::max);
    let span = if span > 0.0 { span } else { longest };
    if span > 0.0 { trace.work() / span } else { 0.0 }
}

impl Workload {
    /// The jobs of a trace for a cluster.
    ///
    /// With a load, all times between submissions are scaled by the same factor so that
    /// the trace produces that load; durations stay.
    pub fn new(trace: &Trace, claims: &Claims, cluster: &Cluster, load: Option<f64>) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "numbers of GPUs are far below 2^52")]
        let gpus = cluster.gpus() as f64;
        let stretch = load.map_or(1.0, |load| demand(trace) / (load * gpus));
        let start = trace.jobs.first().map_or(0.0, |job| job.submitted);
        let room = rooms(cluster);
        let mut workload = Self::default();
        for (number, job) in trace.jobs.iter().enumerate() {
            let pods = pods(job.gpus, claims);
            if !room.iter().any(|nodes| fits(&pods, nodes)) {
                workload.too_large += 1;
                continue;
            }
            workload.tasks.push(Task {
                submitted: millis((job.submitted - start) * stretch),
                duration: millis(job.duration),
                gpus: job.gpus,
                pods,
                number,
                priority: 0,
            });
        }
        workload
    }

    /// Gives about this share of the jobs, drawn at random, [`HIGH`] priority.
    #[must_use]
    pub fn with_high_priority(mut self, share: f64, seed: u64) -> Self {
        let mut draw = Rng::with_seed(seed);
        for task in &mut self.tasks {
            task.priority = if draw.f64() < share { HIGH } else { 0 };
        }
        self
    }

    /// Leaves out jobs with a pod that gets no devices on any idle node.
    pub fn without_impossible(mut self, placer: &mut Placer) -> Result<Self, ClaimError> {
        let claims = Arc::clone(placer.claims());
        let mut possible = Vec::new();
        for task in std::mem::take(&mut self.tasks) {
            let mut fits = true;
            for gpus in &task.pods {
                let shape = task.shape(*gpus, &claims);
                let mut kinds = 0..claims.machines.len();
                fits &= kinds.try_fold(false, |found, kind| {
                    Ok::<_, ClaimError>(found || placer.place(kind, 0, shape)?.is_some())
                })?;
            }
            if fits {
                possible.push(task);
            } else {
                self.never += 1;
            }
        }
        self.tasks = possible;
        Ok(self)
    }

    /// GPUs of the pods of all jobs.
    pub fn pods(&self) -> impl Iterator<Item = u32> {
        self.tasks.iter().flat_map(|task| task.pods.iter().copied())
    }
}

/// GPUs of the nodes of each fabric, most first.
fn rooms(cluster: &Cluster) -> Vec<Vec<u32>> {
    let mut rooms = vec![Vec::new(); cluster.fabrics()];
    for (index, node) in cluster.nodes.iter().enumerate() {
        rooms[node.fabric].push(cluster.gpus_of(index));
    }
    for room in &mut rooms {
        room.sort_unstable_by(|a, b| b.cmp(a));
    }
    rooms
}

/// Whether pods fit on idle nodes; both must be sorted by GPUs, most first. All pods but
/// the last have the same size, and no node holds two of them.
fn fits(pods: &[u32], nodes: &[u32]) -> bool {
    pods.len() <= nodes.len() && pods.iter().zip(nodes).all(|(pod, node)| pod <= node)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are checked")]
fn millis(seconds: f64) -> Millis {
    (seconds * MILLIS).round() as Millis
}
