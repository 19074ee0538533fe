//! Predicts which devices claims get on a node.
//!
//! `prepare` checks the claims, `search` finds devices, and `result` writes the allocations, as
//! `Allocate` does in `structured/internal/{stable,incubating,experimental}/allocator_*.go`.

mod capacity;
mod constraint;
mod counters;
mod equivalent;
mod error;
mod groups;
mod limits;
mod outcome;
mod prepare;
mod problem;
mod result;
mod search;
mod selectable;
mod shares;

use crate::budget::Budget;
use crate::claim::{Ask, Claim};
use crate::device::Device;
use crate::inventory::{Inventory, PoolHealth};
use crate::settings::Settings;
use crate::state::AllocatedState;

pub use crate::allocation::{ClaimAllocation, ConfigResult, ConfigSource, DeviceResult};
pub use capacity::CapacityError;
pub use error::{AllocateError, SelectorFailure, SelectorPlace};
pub use limits::{Limits, MAX_DEVICES};
pub use outcome::{Attempt, NoFit, Outcome};

/// Returns true if a device has what a request takes of its capacities, beside what is in use.
pub(crate) fn leaves_room(
    ask: &Ask,
    device: &Device,
    state: &AllocatedState,
    settings: &Settings,
) -> bool {
    let in_use = state.capacity_in_use(device.id()).unwrap_or_default();
    let demand = capacity::demand(ask.capacity.as_deref(), device, in_use, settings);
    demand.is_ok_and(|demand| demand.is_some_and(|demand| demand.fits(None)))
}

/// Predicts which devices the claims of a pod get on a node.
///
/// `claims` are the pod's claims that are not allocated yet, in the order of `spec.resourceClaims`.
/// `state` holds the devices in use: [`Inventory::state`], or a hypothetical state.
pub fn allocate(
    inventory: &Inventory,
    node: &str,
    claims: &[Claim],
    state: &AllocatedState,
    settings: &Settings,
    limits: Limits<'_>,
) -> Attempt {
    let unlimited = Budget::unlimited();
    let budget = limits.budget.unwrap_or(&unlimited);
    let is_exact = settings.is_deterministic();
    let node = &*inventory.node_or_named(node);
    let pools = match inventory.pools_on(node, settings) {
        Ok(pools) => pools,
        Err(error) => {
            let outcome = Outcome::Failed(Box::new(error.into()));
            return Attempt { outcome, steps: 0, is_exact };
        }
    };
    let problem = match prepare::prepare(inventory, node, &pools, claims, state, settings, budget) {
        Ok(problem) => problem,
        Err(error) => return Attempt { outcome: failure(error), steps: 0, is_exact },
    };
    let (found, steps) = search::search(&problem, limits.max_steps);
    let outcome = match found {
        Ok(Some(solution)) => match result::write(&problem, &solution) {
            Ok(allocations) => Outcome::Allocated(allocations),
            Err(error) => Outcome::Failed(error),
        },
        Ok(None) => Outcome::NoFit(no_fit(&problem)),
        Err(search::Halt::Failed(error)) => failure(error),
        // More devices than a claim can hold. Kubernetes reports no fit for the first claim; the
        // search has handled the other claims.
        Err(search::Halt::MaxSize) => Outcome::NoFit(NoFit::NoSolution),
        Err(search::Halt::OverBudget) => Outcome::OverBudget,
    };
    // One slice has only one order.
    let is_exact = is_exact || pools.iter().map(|pool| pool.slices.len()).sum::<usize>() <= 1;
    let is_exact = is_exact && !pools.iter().any(|pool| pool.is_disputed);
    Attempt { outcome, steps, is_exact }
}

/// The outcome of an error. A spent budget says nothing about what Kubernetes does.
fn failure(error: Box<AllocateError>) -> Outcome {
    if error.is_over_budget() { Outcome::OverBudget } else { Outcome::Failed(error) }
}

fn no_fit(problem: &problem::Problem<'_>) -> NoFit {
    let invalid = problem
        .pools
        .iter()
        .filter(|pool| matches!(pool.health, PoolHealth::Invalid(_)))
        .map(|pool| (*pool.id).clone());
    let invalid: Vec<_> = invalid.collect();
    if invalid.is_empty() { NoFit::NoSolution } else { NoFit::InvalidPools(invalid) }
}
