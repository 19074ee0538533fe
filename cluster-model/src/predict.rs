//! Predicts what the scheduler would do with a pod's claims on a node, by replaying its allocator
//! on the view.

use crate::room::WhyNot;
use crate::view::ClusterView;
use dra_allocator::{
    AllocatedState, Attempt, Budget, Claim, ClaimAllocation, Limits, Outcome, allocate, survey,
};
use std::collections::HashMap;

/// The number of search steps after which a prediction is given up: the most that a claim from
/// admission may cost on a node.
pub const STEPS_MAX: u64 = 10_000;

/// The work that the expressions of a pod's claims may take here, on a cluster with this many nodes.
///
/// Tenants write expressions. Usual ones take some hundred units on a node, about ten nanoseconds
/// each; kube-apiserver accepts ones that take millions.
pub fn work_max(nodes: usize) -> u64 {
    4_000_000 + 16_000 * u64::try_from(nodes).unwrap_or(u64::MAX / 16_000 - 250)
}

/// The budget for the claims of one pod on this cluster.
pub fn budget(view: &ClusterView) -> Budget<'static> {
    Budget::of_work(work_max(view.inventory().node_names().count()))
}

/// The predicted result of claims on a node.
#[derive(Clone, Debug)]
pub enum Prediction {
    /// The claims fit.
    Fits(Fit),
    /// They do not, or it is not known.
    No(WhyNot),
}

/// Devices for claims on a node.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The devices that the scheduler would allocate, claim by claim.
    pub allocations: Vec<ClaimAllocation>,
    /// True if the scheduler allocates exactly these, with all else unchanged. Before 1.36 the
    /// scheduler takes pools in random order, and this is one of its choices.
    pub is_exact: bool,
}

/// Replays the allocator for these claims on a node with the current use of devices.
pub fn predict(view: &ClusterView, node: &str, claims: &[Claim]) -> Prediction {
    let inventory = view.inventory();
    let budget = budget(view);
    let limits = Limits::within(STEPS_MAX, &budget);
    let attempt = allocate(inventory, node, claims, inventory.state(), view.settings(), limits);
    prediction(attempt, &budget)
}

/// Runs [`predict`] for each of these nodes with the devices in `in_use`; equivalent nodes share a
/// search. `stop` ends it early, also within an expression; nodes not reached by then are left out.
pub fn predict_each<'n>(
    view: &ClusterView,
    nodes: impl IntoIterator<Item = &'n str>,
    claims: &[Claim],
    in_use: &AllocatedState,
    stop: &dyn Fn() -> bool,
) -> HashMap<&'n str, Prediction> {
    let inventory = view.inventory();
    let budget = Budget::new(work_max(inventory.node_names().count()), stop);
    let limits = Limits::within(STEPS_MAX, &budget);
    let nodes = nodes.into_iter().take_while(|_| !stop());
    let answers = survey(inventory, nodes, claims, in_use, view.settings(), limits);
    let known = answers.attempts().filter(|(_, attempt)| {
        !(budget.is_stopped() && matches!(attempt.outcome, Outcome::OverBudget))
    });
    known.map(|(node, attempt)| (node, prediction(attempt, &budget))).collect()
}

/// Marks the devices of allocations as in use.
pub fn hold(state: &mut AllocatedState, allocations: &[ClaimAllocation]) {
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    for result in results.filter(|result| !result.admin_access) {
        if result.is_share {
            state.insert_share(result.device.clone(), &result.consumed_capacity);
        } else {
            state.insert(result.device.clone());
        }
    }
}

pub(crate) fn prediction(attempt: Attempt, budget: &Budget<'_>) -> Prediction {
    let is_exact = attempt.is_exact;
    Prediction::No(match attempt.outcome {
        Outcome::Allocated(allocations) => return Prediction::Fits(Fit { allocations, is_exact }),
        Outcome::NoFit(reason) => WhyNot::NoFit(reason),
        Outcome::Failed(error) => WhyNot::Failed(error.in_full()),
        Outcome::OverBudget if budget.left() == 0 => WhyNot::Expensive,
        Outcome::OverBudget => WhyNot::TooManySteps { most: STEPS_MAX },
    })
}
