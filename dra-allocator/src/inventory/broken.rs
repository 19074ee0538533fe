//! Pools from which nothing can be allocated, with the reason. Kubernetes skips them silently, so
//! diagnosis needs them.

use std::fmt;

use super::pools::{Pool, PoolHealth};
use crate::name::PoolId;

/// Why nothing can be allocated from a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolProblem {
    /// Slices of the newest generation are missing: the driver is updating the pool, or they are
    /// lost.
    Missing {
        /// The number of slices present.
        there: usize,
        /// The number of slices expected.
        of: i64,
    },
    /// Its slices contradict each other.
    Invalid(String),
}

impl fmt::Display for PoolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { there, of } => write!(f, "{there} of {of} slices are present"),
            Self::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl PoolHealth {
    /// Why nothing can be allocated, if so.
    fn problem(self) -> Option<PoolProblem> {
        match self {
            Self::Complete => None,
            Self::Incomplete { there, of } => Some(PoolProblem::Missing { there, of }),
            Self::Invalid(reason) => Some(PoolProblem::Invalid(reason)),
        }
    }
}

/// The pools from which nothing can be allocated.
pub(super) fn broken(pools: Vec<Pool<'_>>) -> Vec<(&PoolId, PoolProblem)> {
    pools.into_iter().filter_map(|pool| Some((pool.id, pool.health.problem()?))).collect()
}
