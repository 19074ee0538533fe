//! The question who leaves for a job of higher priority that does not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::cluster::Cluster;
use crate::running::Running;
use crate::workload::{Millis, Task};

/// What is decided from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// All jobs, by index.
    pub tasks: &'a [Task],
    /// The nodes.
    pub cluster: &'a Cluster,
    /// The running jobs.
    pub running: &'a BTreeMap<usize, Running>,
    /// Nodes that another job waits for.
    pub closed: &'a BTreeSet<usize>,
    /// The time.
    pub now: Millis,
}

/// Decides who leaves.
pub trait Decider: Debug {
    /// The jobs that leave so that one starts; none if that does not help.
    fn victims(&mut self, job: usize, situation: Situation<'_>) -> Vec<usize>;
}

/// How jobs are evicted.
#[derive(Debug)]
pub struct Preempting<'a> {
    /// Who decides.
    pub decider: &'a mut (dyn Decider + 'static),
    /// A job that fits within this time when others have ended evicts nobody.
    pub foresight: Millis,
    /// The time between two checkpoints of a job, which it goes on from; without, it begins again.
    pub checkpoint: Option<Millis>,
}
