//! Compares the checkpoint with the machine at start. Pure decisions; the effects are
//! those of preparing and unpreparing.

use crate::model::checkpoint::{Checkpoint, Phase};
use crate::model::plan::{Plan, PlannedDevice};
use crate::prepare::inventory::{Inventory, char_names};
use std::collections::BTreeSet;

/// What to do for one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It was planned in an earlier boot, and only files are left: forget it. It is
    /// planned again when the kubelet asks.
    Forget(String),
    /// The kubelet was not told about it: undo it.
    Undo(String),
    /// It was being unprepared: finish.
    Finish(String),
    /// It is prepared, but files are missing or differ: write them again.
    Repair(String),
    /// The checkpoint does not know it: remove its files.
    Remove(String),
}

impl Step {
    /// The claim's UID.
    pub(super) fn uid(&self) -> &str {
        match self {
            Self::Forget(uid)
            | Self::Undo(uid)
            | Self::Finish(uid)
            | Self::Repair(uid)
            | Self::Remove(uid) => uid,
        }
    }
}

/// Decides the steps. `stale` are claims that were planned in an earlier boot, `whole`
/// those whose files are all there, `files` those with any files.
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
    known
        .chain(
            files
                .iter()
                .filter(|uid| !checkpoint.claims.contains_key(*uid))
                .cloned()
                .map(Step::Remove),
        )
        .collect()
}

/// Whether the kernel names and device numbers of a plan are valid in this boot. After a
/// reboot `uverbs0` may be another NIC's, with the same numbers.
///
/// If the boot ID of the plan or of the machine is unknown, the plan is valid if
/// something was attached for it, because that record does not outlive a boot, or if the
/// machine has each of its devices at the same PCI address now.
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
    plan.rdma_cm.as_ref().is_none_or(|char| inventory.rdma_cm() == Some(char))
        && plan.devices.iter().all(|device| is_there(device, inventory))
}

fn is_there(device: &PlannedDevice, inventory: &Inventory) -> bool {
    let Some(rdma) = &device.rdma else { return true };
    let there = inventory.nic(&device.device).and_then(|nic| nic.rdma.as_ref());
    there.is_some_and(|there| {
        let names: Vec<_> = char_names(there).collect();
        there.name == rdma.name
            && rdma.chars.iter().all(|char| {
                names.contains(&&char.name) && inventory.chars.get(&char.name) == Some(char)
            })
    })
}

#[cfg(test)]
mod tests;
