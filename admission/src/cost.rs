//! Tries a claim before a pod gets it: runs the allocator's own search on every distinct machine,
//! empty and in states with long searches.
//!
//! A search is longest if almost enough devices are free. The states leave free, of each
//! kind of device: all, all but one, every other one, one too few from either end, and
//! one too few in every cell. With all free, the search also says whether the machine can serve the
//! claim at all, whatever its graph says.

use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::join::{self, Candidate};
use crate::nearness::Nearness;
use crate::trials::{ClaimDigest, Empty, OnMachine, TrialKey, Trials};
use cluster_model::machines::Machine;
use cluster_model::names::alternative;
use cluster_model::predict::{self, STEPS_MAX};
use cluster_model::view::ClusterView;
use dra_allocator::reasons::reasons;
use dra_allocator::{
    AllocatedState, Claim, ClaimAllocation, ClaimName, Device, DeviceResult, Inventory, Limits,
    Outcome, WireError, allocate, explain,
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

/// What the allocator says about a claim on each machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trial<'m> {
    /// The most steps that the claim takes on any machine in any state.
    pub(crate) steps: u64,
    /// What it gets on each machine while nothing is in use and no device has a problem, by the machine's
    /// first node.
    empty: BTreeMap<&'m str, Empty>,
    /// How many of its paths are within a NUMA node on each machine that it fits on now while nothing is
    /// in use, by the machine's first node.
    pub(crate) near_paths: BTreeMap<&'m str, u32>,
}

impl Trial<'_> {
    /// What the claim gets on a machine while nothing is in use and no device has a problem.
    pub(crate) fn on(&self, machine: &Machine<'_>) -> Empty {
        self.empty.get(machine.devices.node).copied().unwrap_or(Empty::Nothing)
    }
}

/// Tries the claim of a candidate on each machine in each state, unless `kept` has the result.
pub(crate) fn trial<'m>(
    (view, kept): (&ClusterView, &Trials),
    fleet: Fleet<'_, 'm>,
    candidate: &Candidate<'m>,
    claim: &ResourceClaimSpec,
    budget: u64,
) -> Result<Trial<'m>, CostError> {
    let trier = Trier { view, claims: [parsed(claim)?], budget };
    let mut trial = Trial::default();
    // A claim beside a device plugin counts its devices otherwise than they are needed.
    let is_plugin = fleet.terms.gpu_source.is_plugin();
    let demand = if is_plugin { fleet.demand() } else { &candidate.demand };
    let digest = ClaimDigest::new(claim);
    for machine in fleet.machines {
        let nearness = candidate.searched_at(machine);
        let demands = [demand, fleet.demand()];
        let key = TrialKey::new(view, machine, digest, demands, (nearness, budget));
        let known = kept.get(&key);
        let result = known.map_or_else(|| trier.on_machine(machine, demands, nearness), Ok)?;
        kept.keep(key, result);
        let OnMachine::Searched { steps, empty, near_paths } = result else {
            return Err(CostError::OverBudget(budget));
        };
        let node = machine.devices.node;
        trial.steps = trial.steps.max(steps);
        trial.near_paths.extend(near_paths.map(|near| (node, near)));
        trial.empty.insert(node, empty);
    }
    Ok(trial)
}

/// Whether the claim fits on the machine while nothing is in use and no device has a problem.
pub(crate) fn fits(
    view: &ClusterView,
    machine: &Machine<'_>,
    claim: &ResourceClaimSpec,
    budget: u64,
) -> Result<bool, CostError> {
    let trier = Trier { view, claims: [parsed(claim)?], budget };
    let now = trier.attempt(view.inventory(), machine, &AllocatedState::new())?.gets;
    Ok(trier.in_order(machine, now)? > Empty::Nothing)
}

/// Why the claim does not fit on the node while nothing is in use and no device has a problem: what the
/// allocator says of its first request that fails.
pub(crate) fn reason(view: &ClusterView, node: &str, claim: &ResourceClaimSpec) -> Option<String> {
    let claim = parsed(claim).ok()?;
    let recovered = view.recovered(node);
    let inventory = recovered.as_ref().unwrap_or_else(|| view.inventory());
    let (empty, settings) = (AllocatedState::new(), view.settings());
    let budget = predict::budget(view);
    let limits = Limits::within(STEPS_MAX, &budget);
    let failures = explain::failures(inventory, node, &[claim], &empty, settings, limits);
    reasons(&failures.ok()?).into_iter().next()
}

fn parsed(claim: &ResourceClaimSpec) -> Result<Claim, CostError> {
    Claim::from_spec(ClaimName::new("", "plan"), claim).map_err(CostError::Unreadable)
}

/// A claim that is tried.
struct Trier<'a> {
    view: &'a ClusterView,
    claims: [Claim; 1],
    budget: u64,
}

/// The result of a search.
struct Tried {
    gets: Empty,
    /// The numbers of GPUs and NICs of each NUMA node, if it fits.
    by_numa: Option<Vec<(u32, u32)>>,
    steps: u64,
}

impl Trier<'_> {
    /// What the claim gets on a machine. States are made for the first demand, paths counted by the second.
    fn on_machine(
        &self,
        machine: &Machine<'_>,
        [demand, of_pod]: [&Demand; 2],
        nearness: Nearness,
    ) -> Result<OnMachine, CostError> {
        let (mut most, mut empty, mut near_paths) = (0, Empty::Nothing, None);
        for state in states(machine, demand, nearness) {
            let search = match self.attempt(self.view.inventory(), machine, &state) {
                Err(CostError::OverBudget(_)) => return Ok(OnMachine::OverBudget),
                other => other?,
            };
            most = most.max(search.steps);
            if state.is_empty() {
                near_paths = search.by_numa.map(|by_numa| of_pod.near_paths(&by_numa));
                empty = match self.in_order(machine, search.gets) {
                    Err(CostError::OverBudget(_)) => return Ok(OnMachine::OverBudget),
                    other => other?,
                };
            }
        }
        Ok(OnMachine::Searched { steps: most, empty, near_paths })
    }

    fn attempt(
        &self,
        inventory: &Inventory,
        machine: &Machine<'_>,
        state: &AllocatedState,
    ) -> Result<Tried, CostError> {
        let node = machine.devices.node;
        let (settings, limits) = (self.view.settings(), Limits::steps(self.budget));
        let attempt = allocate(inventory, node, &self.claims, state, settings, limits);
        let (gets, by_numa) = match attempt.outcome {
            Outcome::Allocated(claims) => (gets(&claims, machine), Some(by_numa(&claims, machine))),
            Outcome::NoFit(_) => (Empty::Nothing, None),
            Outcome::OverBudget => return Err(CostError::OverBudget(self.budget)),
            Outcome::Failed(error) => return Err(CostError::Refused(error.in_full())),
        };
        Ok(Tried { gets, by_numa, steps: attempt.steps })
    }

    /// What the claim gets on the empty node if its devices that are down, degraded or tainted recover:
    /// a plan is not for the moment. `now` is what it gets without that.
    fn in_order(&self, machine: &Machine<'_>, now: Empty) -> Result<Empty, CostError> {
        if now == Empty::All {
            return Ok(now);
        }
        match self.view.recovered(machine.devices.node) {
            Some(recovered) => Ok(self.attempt(&recovered, machine, &AllocatedState::new())?.gets),
            None => Ok(now),
        }
    }
}

/// NICs decide: a GPU may be in any cell while the NICs are those of the last resort.
fn gets(claims: &[ClaimAllocation], machine: &Machine<'_>) -> Empty {
    let results = claims.iter().flat_map(|claim| &claim.results);
    let mut nics = results
        .filter(|it| machine.devices.nics.values().any(|nic| *nic.id() == it.device))
        .peekable();
    let has_nics = nics.peek().is_some();
    if has_nics && nics.all(is_last_resort) { Empty::LastResort } else { Empty::All }
}

/// The numbers of GPUs and NICs that are allocated of each NUMA node.
fn by_numa(claims: &[ClaimAllocation], machine: &Machine<'_>) -> Vec<(u32, u32)> {
    let results = claims.iter().flat_map(|claim| &claim.results);
    join::by_numa(machine, |device| results.clone().any(|result| result.device == *device.id()))
}

/// Whether the device is for the last alternative of a request.
fn is_last_resort(result: &DeviceResult) -> bool {
    result.request.split_once('/').is_some_and(|(_, name)| alternative::is_last_resort(name))
}

/// The distinct states of a machine. One of them has nothing in use.
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
    let of_cells = cells.iter().flat_map(|cell| cell.iter().take(of_block.saturating_sub(1)));
    BTreeSet::from([
        all.iter().copied().collect(),
        all.iter().skip(1).copied().collect(),
        all.iter().step_by(2).copied().collect(),
        all.iter().take(few).copied().collect(),
        all.iter().rev().take(few).copied().collect(),
        of_cells.copied().collect(),
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
