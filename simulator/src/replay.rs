//! Replays a workload: jobs are submitted, wait in one queue, run, and end.
//!
//! The queue is first in, first out, with backfill as in EASY (Lifka, "The ANL/IBM SP
//! scheduling system", 1995): whenever jobs were submitted or have ended, all waiting
//! jobs are tried in the order of their submission. The first one that does not fit gets
//! a reservation: the nodes on which it can start soonest as running jobs end. A later
//! job may use such a node only if it ends before that. The queue knows how long jobs
//! run; no policy changes its order.
//!
//! A gang takes the fabric that has room for all of its pods with the least remaining room, as the
//! fabric controller chooses. Its pods are then scheduled one by one on nodes of that fabric.
//!
//! Jobs of higher priority are ahead of all others in the queue. If jobs may be evicted for one that does
//! not fit ([`Preempting`]), they wait again, behind those of their priority.

mod eviction;
mod reservation;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use topology_graph::PathKind;

use crate::claims::{ClaimError, Placer, Shape};
use crate::cluster::Cluster;
use crate::communication::Communication;
use crate::decider::Preempting;
use crate::policy::{Candidate, Pod, Policy, best};
use crate::running::{Bound, Running};
use crate::workload::{Millis, Task, Workload};
use reservation::Reservation;

/// Decides which of the best nodes a pod is bound to.
pub trait Binder {
    /// Returns the index of a candidate, one of `best`. The candidates are all nodes that
    /// are `allowed` and on which the pod fits.
    fn bind(
        &mut self,
        pod: Pod,
        allowed: &dyn Fn(usize) -> bool,
        candidates: &[Candidate],
        best: &[usize],
    ) -> usize;
    /// Called when the pod has ended.
    fn ended(&mut self, _pod: Pod) {}
}

/// Draws one of the best candidates at random, as kube-scheduler does.
#[derive(Clone, Debug)]
pub struct Draw(fastrand::Rng);

impl Draw {
    /// Equal seeds give equal draws.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }
}

impl Binder for Draw {
    fn bind(
        &mut self,
        _pod: Pod,
        _allowed: &dyn Fn(usize) -> bool,
        _candidates: &[Candidate],
        best: &[usize],
    ) -> usize {
        best[self.0.usize(..best.len())]
    }
}

/// The outcome of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How long it waited.
    pub waited: Millis,
    /// How long it ran.
    pub ran: Millis,
    /// Whether it started at its first attempt.
    pub at_first_try: bool,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The jobs in the order of their submission.
    pub runs: Vec<Run>,
    /// Number of GPU-NIC pairs per kind of path.
    pub pairs: BTreeMap<PathKind, u64>,
    /// Number of idle GPUs times the time in which at least one job waited, up to the
    /// last submission.
    pub idle_while_waiting: u128,
    /// All GPUs times the time up to the last submission.
    pub gpu_time: u128,
    /// Jobs of several pods.
    pub gangs: u64,
    /// Those whose pods are all in one NVLink domain.
    pub gangs_in_one_domain: u64,
    /// How often a job was evicted.
    pub evictions: u64,
    /// Those for a job that did not start then.
    pub evictions_in_vain: u64,
    /// GPUs times the time that evicted jobs ran and that they run again.
    pub lost: u128,
    /// GPUs times the time that jobs ran and do not run again, up to the last submission.
    pub useful: u128,
}

/// What a job did before it was evicted.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// How long it ran.
    ran: Millis,
    /// The part of its duration that it need not run again.
    done: Millis,
}

struct Replay<'a> {
    tasks: &'a [Task],
    cluster: Cluster,
    policy: &'a mut dyn Policy,
    binder: &'a mut dyn Binder,
    placer: &'a mut Placer,
    communication: Communication,
    preempting: Option<Preempting<'a>>,
    now: Millis,
    last_submission: Millis,
    /// Indices of the waiting jobs.
    queue: Vec<usize>,
    /// Jobs that have not fitted since the last job ended, by GPUs and chosen claim, and whether
    /// nodes of the reservation were allowed.
    hopeless: BTreeSet<(Shape, bool)>,
    /// Likewise, those of higher priority for which nobody leaves.
    unhelped: BTreeSet<(Shape, bool)>,
    /// The reservation of the first waiting job, valid until a job ends.
    reservation: Option<Reservation>,
    /// When running jobs end.
    ends: BinaryHeap<Reverse<(Millis, usize)>>,
    running: BTreeMap<usize, Running>,
    past: Vec<Past>,
    pods: u64,
    runs: Vec<Option<Run>>,
    record: Record,
}

/// Replays a workload on an idle cluster until all jobs have ended.
pub fn replay(
    workload: &Workload,
    cluster: Cluster,
    policy: &mut dyn Policy,
    binder: &mut dyn Binder,
    placer: &mut Placer,
    communication: Communication,
    preempting: Option<Preempting<'_>>,
) -> Result<Record, ClaimError> {
    let tasks = &workload.tasks;
    let mut replay = Replay {
        tasks,
        cluster,
        policy,
        binder,
        placer,
        communication,
        preempting,
        now: 0,
        last_submission: tasks.last().map_or(0, |task| task.submitted),
        queue: Vec::new(),
        hopeless: BTreeSet::new(),
        unhelped: BTreeSet::new(),
        reservation: None,
        ends: BinaryHeap::new(),
        running: BTreeMap::new(),
        past: vec![Past::default(); tasks.len()],
        pods: 0,
        runs: vec![None; tasks.len()],
        record: Record::default(),
    };
    replay.run()?;
    let Replay { runs, mut record, cluster, last_submission, .. } = replay;
    record.runs = runs.into_iter().flatten().collect();
    record.gpu_time = u128::from(cluster.gpus()) * u128::from(last_submission);
    Ok(record)
}

impl Replay<'_> {
    fn run(&mut self) -> Result<(), ClaimError> {
        let mut next = 0;
        loop {
            let submitted = self.tasks.get(next).map(|task| task.submitted);
            let ends = self.ends.peek().map(|Reverse((end, _))| *end);
            let Some(now) = submitted.into_iter().chain(ends).min() else { return Ok(()) };
            self.advance(now);
            self.end_jobs();
            while self.tasks.get(next).is_some_and(|task| task.submitted == now) {
                self.submit(next);
                next += 1;
            }
            self.schedule()?;
        }
    }

    fn advance(&mut self, now: Millis) {
        let (from, to) = (self.now.min(self.last_submission), now.min(self.last_submission));
        if !self.queue.is_empty() {
            let idle = u128::from(self.cluster.idle_gpus());
            self.record.idle_while_waiting += idle * u128::from(to - from);
        }
        self.now = now;
    }

    /// Puts a job into the queue, behind those of its priority. A reservation for one of lower priority
    /// is void.
    fn submit(&mut self, job: usize) {
        let priority = self.tasks[job].priority;
        let at = self.queue.partition_point(|other| self.tasks[*other].priority >= priority);
        if at < self.queue.len() {
            self.look_again();
        }
        self.queue.insert(at, job);
    }

    fn end_jobs(&mut self) {
        while let Some(Reverse((end, job))) = self.ends.peek().copied()
            && end <= self.now
        {
            self.ends.pop();
            self.look_again();
            if let Some(running) = self.running.remove(&job) {
                self.settle(job, running, end);
            }
        }
    }

    /// Forgets what holds only until something ends.
    fn look_again(&mut self) {
        self.hopeless.clear();
        self.unhelped.clear();
        self.reservation = None;
    }

    /// Frees what a job had, whose work until then counts.
    fn settle(&mut self, job: usize, running: Running, until: Millis) {
        let last = self.last_submission;
        let useful = until.min(last) - running.started.min(last);
        self.record.useful += u128::from(self.tasks[job].gpus) * u128::from(useful);
        for bound in running.bound {
            self.release(&bound);
        }
    }

    fn release(&mut self, bound: &Bound) {
        self.cluster.free(bound.node, bound.placement.devices);
        self.policy.ended(bound.pod);
        self.binder.ended(bound.pod);
    }

    /// Tries all waiting jobs. Room only shrinks meanwhile, so what does not fit once
    /// does not fit again before a job ends.
    fn schedule(&mut self) -> Result<(), ClaimError> {
        let mut waiting = Vec::new();
        let mut queue = VecDeque::from(std::mem::take(&mut self.queue));
        while let Some(job) = queue.pop_front() {
            let demand = self.tasks[job].demand(self.placer.claims());
            let end = self.now + self.remaining(job);
            let may_borrow = self.reservation.as_ref().is_none_or(|it| end <= it.start);
            let is_hopeless = self.hopeless.contains(&(demand, true))
                || self.hopeless.contains(&(demand, may_borrow));
            if !is_hopeless && self.start(job, may_borrow)? {
                continue;
            }
            let evicted = self.make_room(job, may_borrow)?;
            if !evicted.is_empty() {
                queue.extend(&evicted);
                if self.start(job, may_borrow)? {
                    continue;
                }
                self.record.evictions_in_vain += evicted.len() as u64;
            }
            if self.reservation.is_none() {
                self.reservation = self.reserve(job)?;
            }
            self.hopeless.insert((demand, may_borrow));
            waiting.push(job);
        }
        self.queue = waiting;
        Ok(())
    }

    /// Reserves nodes for the first waiting job.
    fn reserve(&mut self, job: usize) -> Result<Option<Reservation>, ClaimError> {
        let mut ends: Vec<_> = self.ends.iter().map(|Reverse(end)| *end).collect();
        ends.sort_unstable();
        let frees = ends.iter().flat_map(|(end, job)| {
            let bound = self.running.get(job).into_iter().flat_map(|running| &running.bound);
            bound.map(move |bound| (*end, bound.node, bound.placement.devices))
        });
        reservation::reserve(&self.tasks[job], &self.cluster, frees, self.placer)
    }

    /// Starts a job if all of its pods fit. `may_borrow` allows nodes of the reservation.
    fn start(&mut self, job: usize, may_borrow: bool) -> Result<bool, ClaimError> {
        let task = &self.tasks[job];
        let placed = match task.pods.as_slice() {
            [gpus] => self.place(self.shape(task, *gpus), None, may_borrow)?.map(|one| vec![one]),
            _ => self.place_gang(task, may_borrow)?,
        };
        let Some(placed) = placed else { return Ok(false) };
        self.count_domains(&placed);
        let mut slowdown = 1.0_f64;
        for bound in &placed {
            let pairs = &bound.placement.pairs;
            for path in pairs {
                *self.record.pairs.entry(*path).or_default() += 1;
            }
            let is_whole = bound.pod.gpus == self.cluster.gpus_of(bound.node);
            slowdown = slowdown.max(self.communication.slowdown(pairs, is_whole));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "years at most")]
        #[allow(clippy::cast_precision_loss, reason = "years at most")]
        let runs = (self.remaining(job) as f64 * slowdown).round() as Millis;
        self.ends.push(Reverse((self.now + runs, job)));
        self.running.insert(job, Running { started: self.now, bound: placed, slowdown });
        let ran = self.past[job].ran;
        let waited = self.now - task.submitted - ran;
        self.runs[job] = Some(Run { waited, ran: ran + runs, at_first_try: waited == 0 });
        Ok(true)
    }

    /// How long a job still runs with near NICs.
    fn remaining(&self, job: usize) -> Millis {
        self.tasks[job].duration - self.past[job].done
    }

    fn shape(&self, task: &Task, gpus: u32) -> Shape {
        task.shape(gpus, self.placer.claims())
    }

    /// Counts a gang, and whether it is in one domain.
    fn count_domains(&mut self, placed: &[Bound]) {
        if placed.len() < 2 {
            return;
        }
        let domains = placed.iter().map(|bound| self.cluster.nodes[bound.node].domain);
        let domains: BTreeSet<_> = domains.collect();
        self.record.gangs += 1;
        self.record.gangs_in_one_domain += u64::from(domains.len() == 1);
    }

    /// Schedules one pod, on the given fabric if any.
    fn place(
        &mut self,
        shape: Shape,
        fabric: Option<usize>,
        may_borrow: bool,
    ) -> Result<Option<Bound>, ClaimError> {
        let candidates = self.candidates(shape, fabric, may_borrow)?;
        if candidates.is_empty() {
            return Ok(None);
        }
        let pod = Pod { uid: self.pods, gpus: shape.gpus };
        self.pods += 1;
        let scores = self.policy.scores(pod, &candidates, &self.cluster);
        let (nodes, reserved) =
            (&self.cluster.nodes, self.reservation.as_ref().filter(|_| !may_borrow));
        let chosen = self.binder.bind(
            pod,
            &|node| is_allowed(node, nodes[node].fabric, fabric, reserved),
            &candidates,
            &best(&scores),
        );
        let chosen = candidates[chosen].clone();
        self.cluster.take(chosen.node, chosen.placement.devices);
        self.policy.bound(pod, &chosen)?;
        Ok(Some(Bound { pod, node: chosen.node, placement: chosen.placement }))
    }

    /// The nodes on which a pod fits.
    fn candidates(
        &mut self,
        shape: Shape,
        fabric: Option<usize>,
        may_borrow: bool,
    ) -> Result<Vec<Candidate>, ClaimError> {
        let reserved = self.reservation.as_ref().filter(|_| !may_borrow);
        let mut candidates = Vec::new();
        for (node, state) in self.cluster.nodes.iter().enumerate() {
            let free = self.cluster.gpus_of(node) - self.cluster.gpus_in_use(node);
            if free < shape.gpus || !is_allowed(node, state.fabric, fabric, reserved) {
                continue;
            }
            if let Some(placement) = self.placer.place(state.kind, state.busy, shape)? {
                candidates.push(Candidate { node, placement });
            }
        }
        Ok(candidates)
    }

    /// Schedules all pods of a gang on one fabric, or none of them.
    fn place_gang(
        &mut self,
        task: &Task,
        may_borrow: bool,
    ) -> Result<Option<Vec<Bound>>, ClaimError> {
        for fabric in self.fabrics_for(task, may_borrow)? {
            let mut placed = Vec::new();
            for gpus in &task.pods {
                match self.place(self.shape(task, *gpus), Some(fabric), may_borrow)? {
                    Some(one) => placed.push(one),
                    None => break,
                }
            }
            if placed.len() == task.pods.len() {
                return Ok(Some(placed));
            }
            for bound in &placed {
                self.release(bound);
            }
        }
        Ok(None)
    }

    /// The fabrics with room for a gang's whole machines, least room first.
    fn fabrics_for(&mut self, task: &Task, may_borrow: bool) -> Result<Vec<usize>, ClaimError> {
        let Some(most) = task.pods.iter().max().copied() else { return Ok(Vec::new()) };
        let whole = task.pods.iter().filter(|gpus| **gpus == most).count();
        let mut room = vec![0; self.cluster.fabrics()];
        for candidate in self.candidates(self.shape(task, most), None, may_borrow)? {
            room[self.cluster.nodes[candidate.node].fabric] += 1;
        }
        let mut fabrics: Vec<_> = (0..room.len()).filter(|fabric| room[*fabric] >= whole).collect();
        fabrics.sort_by_key(|fabric| room[*fabric]);
        Ok(fabrics)
    }
}

/// Whether a pod may use a node: it must be on the requested fabric and not reserved for
/// another job.
fn is_allowed(
    node: usize,
    of: usize,
    fabric: Option<usize>,
    reserved: Option<&Reservation>,
) -> bool {
    fabric.is_none_or(|fabric| fabric == of)
        && reserved.is_none_or(|reserved| !reserved.nodes.contains(&node))
}
