//! Allocation: which devices claims would get on a node.
//!
//! First everything is checked and prepared (`prepare`), then searched (`search`), then
//! written down (`result`), as `Allocate` in
//! `structured/internal/{stable,incubating,experimental}/allocator_*.go` does.

mod capacity;
mod constraint;
mod counters;
mod error;
mod groups;
mod prepare;
mod result;
mod search;
mod selectable;
mod shares;

use std::fmt;
use std::sync::Arc;

use crate::claim::{Claim, OpaqueConfig, Toleration};
use crate::inventory::Inventory;
use crate::name::{DeviceId, PoolId, QualifiedName};
use crate::node::NodeSelector;
use crate::pools::{PoolHealth, gather};
use crate::quantity::Quantity;
use crate::settings::Settings;
use crate::state::AllocatedState;

pub use capacity::CapacityError;
pub use error::{AllocateError, SelectorFailure, SelectorPlace};

/// The most devices of one claim (`AllocationResultsMaxSize`).
pub const MAX_DEVICES: usize = 32;

/// When to give up.
#[derive(Clone, Copy, Default)]
pub struct Limits<'a> {
    /// The most steps of the search.
    pub max_steps: Option<u64>,
    /// Asked now and then during the search; true ends it.
    pub stop: Option<&'a dyn Fn() -> bool>,
}

impl fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("max_steps", &self.max_steps)
            .field("stop", &self.stop.is_some())
            .finish()
    }
}

impl Limits<'_> {
    /// At most this many steps.
    pub fn steps(max_steps: u64) -> Self {
        Self { max_steps: Some(max_steps), stop: None }
    }
}

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

/// What a claim gets.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimAllocation {
    /// The devices, in the order of their requests.
    pub results: Vec<DeviceResult>,
    /// Configuration for drivers: that of classes first.
    pub config: Vec<ConfigResult>,
    /// The nodes that the claim can be used on; none: all.
    pub node_selector: Option<NodeSelector>,
}

/// A device that a claim gets.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceResult {
    /// `request`, or `request/subrequest`.
    pub request: Arc<str>,
    /// The device.
    pub device: DeviceId,
    /// Whether the device stays free for others.
    pub admin_access: bool,
    /// The tolerations of the request.
    pub tolerations: Vec<Toleration>,
    /// Whether this is a share of the device, which Kubernetes gives a random id.
    pub is_share: bool,
    /// What the share takes.
    pub consumed_capacity: Vec<(QualifiedName, Quantity)>,
    /// Conditions before the pod is bound.
    pub binding_conditions: Vec<Arc<str>>,
    /// Conditions that end the wait for them.
    pub binding_failure_conditions: Vec<Arc<str>>,
    /// What kubelet leaves out for the device.
    pub skip_node_operations: Vec<Arc<str>>,
}

/// Where configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The class.
    Class,
    /// The claim.
    Claim,
}

/// Configuration for a driver.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigResult {
    /// Where it comes from.
    pub source: ConfigSource,
    /// The requests that it is for; empty: all.
    pub requests: Vec<Arc<str>>,
    /// The configuration.
    pub config: OpaqueConfig,
}

/// Which devices the claims of a pod would get on a node.
///
/// The claims are those of the pod that are not allocated yet, in the order of
/// `spec.resourceClaims`. `state` is what is in use: [`Inventory::state`], or a hypothesis.
pub fn allocate(
    inventory: &Inventory,
    node: &str,
    claims: &[Claim],
    state: &AllocatedState,
    settings: &Settings,
    limits: Limits<'_>,
) -> Attempt {
    let is_exact = settings.is_deterministic();
    let failed = |error| Attempt { outcome: Outcome::Failed(error), steps: 0, is_exact };
    let node = inventory.node_or_named(node);
    let pools = match gather(inventory, &node, settings) {
        Ok(pools) => pools,
        Err(error) => return failed(Box::new(error.into())),
    };
    let problem = match prepare::prepare(inventory, &node, &pools, claims, state, settings) {
        Ok(problem) => problem,
        Err(error) => return failed(error),
    };
    let (found, steps) = search::search(&problem, limits);
    let outcome = match found {
        Ok(Some(solution)) => match result::write(&problem, solution) {
            Ok(allocations) => Outcome::Allocated(allocations),
            Err(error) => Outcome::Failed(error),
        },
        Ok(None) => Outcome::NoFit(no_fit(&problem)),
        Err(search::Halt::Failed(error)) => Outcome::Failed(error),
        // More devices than fit into a claim: Kubernetes says "no" to the first claim, and
        // the search has handled the others.
        Err(search::Halt::MaxSize) => Outcome::NoFit(NoFit::NoSolution),
        Err(search::Halt::OverBudget) => Outcome::OverBudget,
    };
    // With one slice there is one order.
    let is_exact = is_exact || pools.iter().map(|pool| pool.slices.len()).sum::<usize>() <= 1;
    let is_exact = is_exact && !pools.iter().any(|pool| pool.is_disputed);
    Attempt { outcome, steps, is_exact }
}

fn no_fit(problem: &prepare::Problem<'_>) -> NoFit {
    let invalid = problem
        .pools
        .iter()
        .filter(|pool| matches!(pool.health, PoolHealth::Invalid(_)))
        .map(|pool| (*pool.id).clone());
    let invalid: Vec<_> = invalid.collect();
    if invalid.is_empty() { NoFit::NoSolution } else { NoFit::InvalidPools(invalid) }
}
