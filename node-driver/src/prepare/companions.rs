//! Claims of one pod. A container can have several, but one variable of a name and one
//! file at a path, and which containers have which claims the kubelet does not say. So
//! each claim's variables and files tell of all that the pod has, and are the same
//! whichever of them the runtime takes last. Which devices a container was given say
//! its variables `DRANET_…`, one for each device.

use crate::prepare::checkpoint::{Checkpoint, Phase};
use crate::prepare::plan::{Companion, Plan, Wiring};

/// The plans of a pod's claims, each with what all of them are told: the new one, then
/// those that change by it. A claim of several pods is told of by itself: what one of
/// them has is not the others'.
pub(super) fn joined(
    plan: &Plan,
    checkpoint: &Checkpoint,
    wire: impl FnOnce(&Plan) -> Wiring,
) -> (Plan, Vec<Plan>) {
    let is_companion = |other: &&Plan| {
        plan.pods.len() == 1 && other.pods == plan.pods && other.claim.uid != plan.claim.uid
    };
    let promised = checkpoint.claims.values().filter(|record| record.phase == Phase::Prepared);
    let others: Vec<Plan> =
        promised.map(|record| &record.plan).filter(is_companion).cloned().collect();
    let mut all: Vec<&Plan> = others.iter().chain([plan]).collect();
    all.sort_by(|one, other| one.claim.uid.cmp(&other.claim.uid));
    let whole = Plan {
        devices: all.iter().flat_map(|plan| plan.devices.clone()).collect(),
        others: all.iter().flat_map(|plan| plan.others.clone()).collect(),
        ..plan.clone()
    };
    let common = wire(&whole);
    let told = |plan: &Plan| {
        let beside = all.iter().filter(|other| other.claim.uid != plan.claim.uid);
        let beside = beside.map(|other| Companion::from(*other)).collect();
        Plan { wiring: Wiring { beside, ..common.clone() }, ..plan.clone() }
    };
    (told(plan), others.iter().map(told).collect())
}

#[cfg(test)]
mod tests;
