//! Joins the claims of one pod. A container can have several claims, but only one
//! environment variable per name and one file per path, and the kubelet does not say
//! which containers have which claims. So the variables and files of each claim describe
//! the devices of all the pod's claims: whichever of them the runtime applies last, the
//! result is the same. The variables `DRANET_…`, one per device, show which devices a
//! container really has.

use crate::model::checkpoint::{Checkpoint, Phase};
use crate::model::plan::{Companion, Plan, Wiring};

/// Returns the new plan and the plans of the pod's other claims, each with the common
/// description. A claim that several pods share is described alone, because those pods do
/// not share their other claims.
pub(super) fn joined(
    plan: &Plan,
    checkpoint: &Checkpoint,
    wire: impl FnOnce(&Plan) -> Wiring,
) -> (Plan, Vec<Plan>) {
    let promised = checkpoint.claims.values().filter(|record| record.phase == Phase::Prepared);
    let others: Vec<Plan> = promised
        .map(|record| &record.plan)
        .filter(|other| {
            plan.pods.len() == 1 && other.pods == plan.pods && other.claim.uid != plan.claim.uid
        })
        .cloned()
        .collect();
    let mut all: Vec<&Plan> = others.iter().chain([plan]).collect();
    all.sort_by(|one, other| one.claim.uid.cmp(&other.claim.uid));
    let whole = Plan {
        devices: all.iter().flat_map(|plan| plan.devices.clone()).collect(),
        others: all.iter().flat_map(|plan| plan.others.clone()).collect(),
        // Each claim with places has all of the pod's.
        plugin_gpus: all
            .iter()
            .map(|it| &it.plugin_gpus)
            .max_by_key(|it| it.len())
            .cloned()
            .unwrap_or_default(),
        ..plan.clone()
    };
    let common = wire(&whole);
    let described = others.iter().map(|other| describe(other, &all, &common)).collect();
    (describe(plan, &all, &common), described)
}

/// The plan with the common description, beside the others of its pod.
fn describe(plan: &Plan, all: &[&Plan], common: &Wiring) -> Plan {
    let beside = all.iter().filter(|other| other.claim.uid != plan.claim.uid);
    let beside = beside.map(|other| Companion::from(*other)).collect();
    Plan { wiring: Wiring { beside, ..common.clone() }, ..plan.clone() }
}

#[cfg(test)]
mod tests;
