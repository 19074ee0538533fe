//! What is answered.

use std::fmt;

use super::error::AllocateError;
use crate::allocation::ClaimAllocation;
use crate::name::PoolId;

/// An answer, and what it took to find it.
#[derive(Debug)]
pub struct Attempt {
    /// The answer.
    pub outcome: Outcome,
    /// How often Kubernetes' `allocateOne` is called for it.
    pub steps: u64,
    /// Whether Kubernetes answers this and nothing else. Before 1.36, and in the stable variant,
    /// it takes pools in random order; in every version it believes any of the slices of a pool
    /// that disagree on how many there are. Then this is one of its answers.
    pub is_exact: bool,
}

/// What happens to a pod with these claims on a node.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The claims get these devices: one allocation for each claim.
    Allocated(Vec<ClaimAllocation>),
    /// The claims do not fit on this node; others are still tried.
    NoFit(NoFit),
    /// The attempt fails for the pod on all nodes.
    Failed(Box<AllocateError>),
    /// The limits ended the search; nothing is known.
    OverBudget,
}

/// Why claims do not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFit {
    /// No choice of devices satisfies the claims.
    NoSolution,
    /// So it is, and some pools were left out because their slices contradict each other.
    InvalidPools(Vec<PoolId>),
}

impl fmt::Display for NoFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSolution => f.write_str("no choice of devices satisfies the claims"),
            Self::InvalidPools(pools) => {
                f.write_str("no choice of devices satisfies the claims; invalid pools:")?;
                pools.iter().try_for_each(|pool| write!(f, " {pool}"))
            }
        }
    }
}
