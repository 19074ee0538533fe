//! At start: what the checkpoint says against what is there. Pure decisions;
//! their effects are those of preparing and unpreparing.

use crate::prepare::checkpoint::{Checkpoint, Phase};
use crate::prepare::inventory::Inventory;
use crate::prepare::plan::{Plan, PlannedDevice, PlannedRdma};
use std::collections::BTreeSet;

/// What is to be done for one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Planned in an earlier boot, of which nothing is left but files: forgotten, and
    /// planned again when the kubelet asks.
    Forget(String),
    /// Nobody was told of it: undone.
    Undo(String),
    /// On its way out: finished.
    Finish(String),
    /// Promised, and its files are missing: made again.
    Repair(String),
    /// Files of a claim that the checkpoint does not know: removed.
    Remove(String),
}

/// Decides. `stale` are the claims that were planned in an earlier boot, `whole` those
/// whose files are all there, `files` those of which there is any.
pub(super) fn steps(
    checkpoint: &Checkpoint,
    stale: &BTreeSet<String>,
    whole: &BTreeSet<String>,
    files: &BTreeSet<String>,
) -> Vec<Step> {
    let known = checkpoint.claims.iter().filter_map(|(uid, record)| match record.phase {
        _ if stale.contains(uid) => Some(Step::Forget(uid.clone())),
        Phase::Preparing => Some(Step::Undo(uid.clone())),
        Phase::Unpreparing => Some(Step::Finish(uid.clone())),
        Phase::Prepared if !whole.contains(uid) => Some(Step::Repair(uid.clone())),
        Phase::Prepared => None,
    });
    let is_orphan = |uid: &&String| !checkpoint.claims.contains_key(*uid);
    known.chain(files.iter().filter(is_orphan).cloned().map(Step::Remove)).collect()
}

/// Whether the kernel names and device numbers of a plan hold in this boot. After another
/// boot `uverbs0` may be another NIC's, with the same numbers.
///
/// Where the plan or the machine does not tell the boot, the plan holds if something was
/// attached for it, as the record of that ends with the boot, or if each of its devices
/// is what the machine has at the same PCI address now.
pub(super) fn holds(
    plan: &Plan,
    boot: Option<&str>,
    is_attached: bool,
    inventory: &Inventory,
) -> bool {
    match (plan.boot_id.as_deref(), boot) {
        (Some(planned), Some(now)) => planned == now,
        _ => is_attached || is_as_planned(plan, inventory),
    }
}

fn is_as_planned(plan: &Plan, inventory: &Inventory) -> bool {
    let has = |rdma: &PlannedRdma, device: &PlannedDevice| {
        let there = inventory.devices.get(&device.device);
        there.and_then(|nic| nic.rdma.as_ref()).is_some_and(|there| {
            there.name == rdma.name && rdma.chars.iter().all(|char| there.chars.contains(char))
        })
    };
    let has_rdma =
        |device: &PlannedDevice| device.rdma.as_ref().is_none_or(|rdma| has(rdma, device));
    plan.rdma_cm.as_ref().is_none_or(|char| inventory.rdma_cm.as_ref() == Some(char))
        && plan.devices.iter().all(has_rdma)
}

#[cfg(test)]
mod tests;
