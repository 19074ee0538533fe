//! Jobs that run.

use std::sync::Arc;

use crate::claims::Placement;
use crate::policy::Pod;
use crate::workload::Millis;

/// A running pod.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The pod.
    pub pod: Pod,
    /// Its node.
    pub node: usize,
    /// What it has there.
    pub placement: Arc<Placement>,
}

/// A running job.
#[derive(Clone, Debug)]
pub struct Running {
    /// Since when it runs.
    pub started: Millis,
    /// Its pods.
    pub bound: Vec<Bound>,
    /// How many times longer it takes than with near NICs.
    pub slowdown: f64,
}
