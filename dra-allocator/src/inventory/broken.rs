//! Pools of which nothing is allocated, and why not: for who asks what is wrong, since
//! Kubernetes passes them over without a word.

use std::fmt;

use super::pools::{Pool, PoolHealth};
use crate::name::PoolId;

/// What is wrong with a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolProblem {
    /// Not all slices of its newest generation are there: it is being updated, or they
    /// are lost.
    Missing {
        /// How many there are.
        there: usize,
        /// How many there shall be.
        of: i64,
    },
    /// Its slices contradict each other.
    Invalid(String),
}

impl fmt::Display for PoolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { there, of } => write!(f, "{there} of {of} slices are there"),
            Self::Invalid(reason) => f.write_str(reason),
        }
    }
}

/// The pools of which no device can be allocated.
pub(super) fn broken(pools: Vec<Pool<'_>>) -> Vec<(&PoolId, PoolProblem)> {
    let problem = |health| match health {
        PoolHealth::Complete => None,
        PoolHealth::Incomplete { there, of } => Some(PoolProblem::Missing { there, of }),
        PoolHealth::Invalid(reason) => Some(PoolProblem::Invalid(reason)),
    };
    pools.into_iter().filter_map(|pool| Some((pool.id, problem(pool.health)?))).collect()
}
