//! Measures a claim's worst-case cost for the scheduler: runs the allocator's own search
//! on every distinct machine, empty and in states with long searches.
//!
//! A search is longest if almost enough devices are free. The states leave free, of each
//! kind of device: all, all but one, every other one, one too few from either end, and
//! one too few in every cell.

use crate::demand::Demand;
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, Claim, ClaimName, Device, Limits, Outcome, WireError, allocate,
};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::PciAddress;

/// The claim cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CostError {
    /// The search takes more steps than allowed.
    #[error("more than {0} search steps on one node")]
    OverBudget(u64),
    /// The scheduler would fail on the claim.
    #[error("the scheduler would refuse it: {0}")]
    Refused(String),
    /// The claim cannot be parsed.
    #[error("failed to read the claim")]
    Unreadable(#[source] WireError),
}

/// The most steps that the claim takes on any machine in any state. `levels` has the nearness on
/// each machine, if the claim guarantees one there.
pub(crate) fn worst(
    view: &ClusterView,
    machines: &[Machine<'_>],
    demand: &Demand,
    (levels, nearness): (&[Option<Nearness>], Nearness),
    claim: &ResourceClaimSpec,
    budget: u64,
) -> Result<u64, CostError> {
    let claim =
        Claim::from_spec(ClaimName::new("", "plan"), claim).map_err(CostError::Unreadable)?;
    let claims = [claim];
    let mut worst = 0;
    for (index, machine) in machines.iter().enumerate() {
        let Some(node) = machine.nodes.first() else { continue };
        let nearness = levels.get(index).copied().flatten().unwrap_or(nearness);
        for state in states(machine, demand, nearness) {
            let limits = Limits::steps(budget);
            let attempt =
                allocate(view.inventory(), node, &claims, &state, view.settings(), limits);
            match attempt.outcome {
                Outcome::OverBudget => return Err(CostError::OverBudget(budget)),
                Outcome::Failed(error) => return Err(CostError::Refused(error.in_full())),
                Outcome::Allocated(_) | Outcome::NoFit(_) => worst = worst.max(attempt.steps),
            }
        }
    }
    Ok(worst)
}

/// The distinct states of a machine.
fn states(machine: &Machine<'_>, demand: &Demand, nearness: Nearness) -> Vec<AllocatedState> {
    let cells = nearness.cells(machine);
    let devices = &machine.devices;
    let gpus = free_sets(
        &devices.gpus.keys().copied().collect::<Vec<_>>(),
        &cells.iter().map(|cell| cell.gpus.clone()).collect::<Vec<_>>(),
        demand.all_gpus() as usize,
        demand.gpus as usize,
    );
    let nics = free_sets(
        &devices.nics.keys().copied().collect::<Vec<_>>(),
        &cells.iter().map(|cell| cell.nics.clone()).collect::<Vec<_>>(),
        demand.all_nics() as usize,
        demand.nics as usize,
    );
    let pairs = gpus.iter().flat_map(|gpus| nics.iter().map(move |nics| (gpus, nics)));
    pairs.map(|(gpus, nics)| busy(&devices.gpus, gpus, &devices.nics, nics)).collect()
}

/// The free devices in each state. The claim requests `wanted` devices in total,
/// `of_block` of them from one cell.
pub(crate) fn free_sets<T: Ord + Copy>(
    all: &[T],
    cells: &[Vec<T>],
    wanted: usize,
    of_block: usize,
) -> BTreeSet<BTreeSet<T>> {
    let few = wanted.saturating_sub(1);
    let first = |count: usize| all.iter().take(count).copied().collect();
    let last = |count: usize| all.iter().rev().take(count).copied().collect();
    BTreeSet::from([
        first(all.len()),
        last(all.len().saturating_sub(1)),
        all.iter().step_by(2).copied().collect(),
        first(few),
        last(few),
        cells
            .iter()
            .flat_map(|cell| {
                let keep = of_block.saturating_sub(1);
                cell.iter().take(keep).copied().collect::<Vec<_>>()
            })
            .collect(),
    ])
}

fn busy(
    gpus: &BTreeMap<PciAddress, &Device>,
    free_gpus: &BTreeSet<PciAddress>,
    nics: &BTreeMap<PciAddress, &Device>,
    free_nics: &BTreeSet<PciAddress>,
) -> AllocatedState {
    let mut state = AllocatedState::new();
    let busy_gpus = gpus.iter().filter(|(address, _)| !free_gpus.contains(address));
    let busy_nics = nics.iter().filter(|(address, _)| !free_nics.contains(address));
    for (_, device) in busy_gpus.chain(busy_nics) {
        state.insert(device.id().clone());
    }
    state
}
