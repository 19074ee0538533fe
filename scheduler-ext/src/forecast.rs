//! What an allocation on a node means: for the pod, and for pods still to come.

use crate::machine::Machine;
use crate::score::{Cost, Costs, Gets, Mix};
use cluster_model::predict::OpenClaim;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{AllocatedState, ClaimAllocation, ClaimName, DeviceId, DeviceResult};

/// What the scheduler would do with a pod on a node, and what follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// What the pod gets.
    pub gets: Gets,
    /// What the node loses; its fabric is not counted.
    pub cost: Cost,
    /// The devices that are newly taken; none of those with admin access.
    pub taken: Vec<DeviceId>,
}

/// What is asked of every node.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The claims that are open.
    pub claims: &'a [OpenClaim],
    /// The devices of the pod's other claims, wherever they are.
    pub held: &'a [DeviceId],
    /// The pods that are expected.
    pub mix: &'a Mix,
}

impl Forecast {
    /// What these allocations, claim by claim of the question, mean on a machine where
    /// `in_use` was in use before. `costs` holds those of machines of before.
    pub fn of(
        question: Question<'_>,
        machine: &Machine,
        allocations: &[ClaimAllocation],
        in_use: &AllocatedState,
        costs: &mut Costs,
    ) -> Self {
        let Question { claims, held, mix } = question;
        let results = allocations.iter().flat_map(|allocation| &allocation.results);
        let own = results.filter(|result| !result.admin_access);
        let mut devices: Vec<DeviceId> = own.map(|result| result.device.clone()).collect();
        let taken = devices.clone();
        devices.extend_from_slice(held);
        let alternative = alternative(claims, allocations);
        let [before, after] = machine.rooms(in_use, &taken);
        let path = machine.farthest_path(&devices);
        let gets = Gets { alternative, path, degraded: machine.degraded(&devices) };
        let cost = costs.of([&before, &after, machine.whole()], mix);
        Self { gets, cost, taken }
    }
}

/// The places of the chosen alternatives, one for each request that has several.
fn alternative(claims: &[OpenClaim], allocations: &[ClaimAllocation]) -> u32 {
    let of_claim = |(claim, allocation): (&OpenClaim, &ClaimAllocation)| -> u32 {
        let mut seen: Vec<&DeviceResult> = Vec::new();
        for result in &allocation.results {
            if !seen.iter().any(|known| known.request == result.request) {
                seen.push(result);
            }
        }
        seen.iter().map(|result| claim.alternative(&result.request)).sum()
    };
    claims.iter().zip(allocations).map(of_claim).sum()
}

/// The devices that claims hold, in the order of their names.
pub fn held_devices(view: &ClusterView, claims: &[ObjectKey]) -> Vec<DeviceId> {
    let held = |key: &ObjectKey| {
        let claim = ClaimName::new(key.namespace.as_str(), key.name.as_str());
        view.inventory().held_by(&claim).cloned().collect::<Vec<_>>()
    };
    let mut devices: Vec<DeviceId> = claims.iter().flat_map(held).collect();
    devices.sort_unstable();
    devices
}
