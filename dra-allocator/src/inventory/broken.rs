//! Pools of which nothing is allocated, and why not: for who asks what is wrong, since
//! Kubernetes passes them over without a word.

use std::fmt;

use crate::inventory::Inventory;
use crate::name::PoolId;
use crate::pools::{GatherError, PoolHealth, gather};
use crate::settings::Settings;

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

impl Inventory {
    /// The pools of a node of which no device can be allocated.
    pub fn broken_pools_on(
        &self,
        node: &str,
        settings: &Settings,
    ) -> Result<Vec<(&PoolId, PoolProblem)>, GatherError> {
        let node = self.node_or_named(node);
        let pools = gather(self, &node, settings)?.into_iter();
        let broken = pools.filter_map(|pool| match pool.health {
            PoolHealth::Complete => None,
            PoolHealth::Incomplete { there, of } => {
                Some((pool.id, PoolProblem::Missing { there, of }))
            }
            PoolHealth::Invalid(reason) => Some((pool.id, PoolProblem::Invalid(reason))),
        });
        Ok(broken.collect())
    }
}
