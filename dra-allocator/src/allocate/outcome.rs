//! The result of an allocation attempt.

use std::fmt;

use super::error::AllocateError;
use crate::allocation::ClaimAllocation;
use crate::name::PoolId;

/// The outcome of an attempt, and the steps that it took.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The outcome.
    pub outcome: Outcome,
    /// The number of calls of Kubernetes' `allocateOne` for this outcome.
    pub steps: u64,
    /// True if Kubernetes always gives this outcome. False if this is one of several: before 1.36,
    /// and in the stable variant, Kubernetes takes pools in random order; in every version it
    /// trusts any slice if the slices of a pool disagree on their number.
    pub is_exact: bool,
}

/// The outcome for a pod with these claims on a node.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The claims get these devices: one allocation per claim.
    Allocated(Vec<ClaimAllocation>),
    /// The claims do not fit on this node; other nodes are still tried.
    NoFit(NoFit),
    /// The attempt fails for the pod on all nodes.
    Failed(Box<AllocateError>),
    /// A limit ended the search; the outcome is unknown.
    OverBudget,
}

/// The reason why claims do not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFit {
    /// No choice of devices satisfies the claims.
    NoSolution,
    /// The same, and some pools were skipped because their slices contradict each other.
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
