//! The consequences of an allocation on a node, for the pod and for future pods.

use crate::machine::NodeMachine;
use crate::score::{AtStart, Cost, Costs, Gets, Mix};
use cluster_model::late_node::{LateDemand, LateNode, place_count};
use cluster_model::room::OpenClaim;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{AllocatedState, ClaimAllocation, DeviceId, DeviceResult};

/// What the scheduler would allocate for a pod on a node, and the consequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// What the pod gets.
    pub gets: Gets,
    /// What the node loses, without its fabric.
    pub cost: Cost,
    /// Whether the pod is the first with devices on the node.
    pub is_first: bool,
    /// The newly allocated devices, except those with admin access.
    pub taken: Vec<DeviceId>,
}

/// The question that is asked for every node.
#[derive(Clone, Copy, Debug)]
pub struct ForecastQuestion<'a> {
    /// The claims without an allocation.
    pub claims: &'a [OpenClaim],
    /// The devices of the pod's other claims, on any node.
    pub held: &'a [DeviceId],
    /// The mix of expected pods.
    pub mix: &'a Mix,
}

impl Forecast {
    /// The consequences of these allocations, one for each open claim, on a machine where
    /// `in_use` was in use before; `late` is what is free there if it binds NICs late. `costs` caches
    /// costs of earlier machines.
    pub fn new(
        question: ForecastQuestion<'_>,
        (machine, late): (&NodeMachine, Option<LateNode<'_>>),
        allocations: &[ClaimAllocation],
        in_use: &AllocatedState,
        costs: &mut Costs,
    ) -> Self {
        let ForecastQuestion { claims, held, mix } = question;
        let results = allocations.iter().flat_map(|allocation| &allocation.results);
        let own = results.filter(|result| !result.admin_access);
        let mut devices: Vec<DeviceId> = own.map(|result| result.device.clone()).collect();
        let taken = devices.clone();
        devices.extend_from_slice(held);
        let alternative = alternative(claims, allocations);
        let [before, after] = machine.rooms(in_use, &taken);
        let farthest = machine.farthest(&devices);
        let shared = machine.shared_gpus(in_use, &taken);
        let degraded = machine.degraded(&devices);
        let at_start = at_start(claims, allocations, late);
        let gets = Gets { alternative, at_start, farthest, shared, degraded };
        let cost = costs.of([&before, &after, machine.whole()], mix);
        let is_first = machine.is_whole(&before) && !machine.is_whole(&after);
        Self { gets, cost, is_first, taken }
    }
}

/// What the pod can expect from the first claim that holds places; `None` if none does.
fn at_start(
    claims: &[OpenClaim],
    allocations: &[ClaimAllocation],
    late: Option<LateNode<'_>>,
) -> Option<AtStart> {
    let (claim, nics) = claims.iter().zip(allocations).find_map(|(claim, allocation)| {
        let places = place_count(allocation);
        (places > 0).then_some((claim, places))
    })?;
    // Without the number of GPUs, and on nodes whose GPUs are not known, nothing is.
    let (Some(demand), Some(late)) = (LateDemand::new(&claim.spec, nics), late) else {
        return Some(AtStart::UNKNOWN);
    };
    Some(AtStart::new(&late.expect(demand)))
}

/// Sum of the indices of the chosen alternatives, over all requests that have several.
fn alternative(claims: &[OpenClaim], allocations: &[ClaimAllocation]) -> u32 {
    claims
        .iter()
        .zip(allocations)
        .map(|(claim, allocation)| -> u32 {
            let mut seen: Vec<&DeviceResult> = Vec::new();
            for result in &allocation.results {
                if !seen.iter().any(|known| known.request == result.request) {
                    seen.push(result);
                }
            }
            seen.iter().map(|result| claim.alternative(&result.request)).sum()
        })
        .sum()
}

/// The devices that the claims hold, sorted.
pub fn held_devices(view: &ClusterView, claims: &[ObjectKey]) -> Vec<DeviceId> {
    let devices = claims.iter().flat_map(|key| view.held_by(key));
    let mut devices: Vec<DeviceId> = devices.cloned().collect();
    devices.sort_unstable();
    devices
}
