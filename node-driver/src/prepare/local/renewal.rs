//! Keeps the kernel names and numbers in prepared claims right.

use crate::model::checkpoint::{Checkpoint, Phase};
use crate::model::plan::Plan;
use crate::prepare::current::{Currency, RdmaDevices};
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::prepare::notices::Subject;
use node_files::durable;
use std::collections::BTreeSet;

impl LocalPreparer {
    /// Compares a prepared claim with the machine. Writes its files again if names or numbers have
    /// changed; returns what has.
    ///
    /// # Errors
    /// [`PrepareError::Lost`]: a device has no RDMA device now. No container can start until it has
    /// one again, because the CDI spec is removed: its numbers may be another NIC's.
    pub(in crate::prepare) fn renew(
        &self,
        checkpoint: &mut Checkpoint,
        uid: &str,
    ) -> Result<Vec<String>, PrepareError> {
        let record = checkpoint.claims.get(uid).filter(|record| record.phase == Phase::Prepared);
        let Some(plan) = record.map(|record| &record.plan) else { return Ok(Vec::new()) };
        match self.rdma_devices().compare(plan) {
            Currency::Current => Ok(Vec::new()),
            Currency::Changed(now, changes) => {
                self.set(checkpoint, &now, Phase::Prepared)?;
                self.effects.apply(&now)?;
                self.tell_changes(&now, &changes);
                Ok(changes)
            }
            Currency::Lost(devices) => {
                durable::remove(&self.effects.paths.cdi_spec(uid))?;
                Err(PrepareError::Lost { claim: plan.claim.clone(), devices })
            }
        }
    }

    /// Refuses a container that has numbers of before.
    pub(in crate::prepare) fn check_numbers(
        &self,
        checkpoint: &mut Checkpoint,
        uid: &str,
    ) -> Result<(), PrepareError> {
        let changes = self.renew(checkpoint, uid)?;
        match checkpoint.claims.get(uid) {
            Some(record) if !changes.is_empty() => {
                Err(PrepareError::Renumbered { claim: record.plan.claim.clone(), changes })
            }
            _ => Ok(()),
        }
    }

    /// Renews all claims. Returns those that have lost a device.
    pub(super) fn renew_all(&self, checkpoint: &mut Checkpoint) -> BTreeSet<String> {
        let uids: Vec<String> = checkpoint.claims.keys().cloned().collect();
        uids.into_iter().filter(|uid| self.is_lost(checkpoint, uid)).collect()
    }

    /// Renews a claim. Returns whether it has lost a device.
    fn is_lost(&self, checkpoint: &mut Checkpoint, uid: &str) -> bool {
        let renewed = self.renew(checkpoint, uid);
        let is_lost = matches!(renewed, Err(PrepareError::Lost { .. }));
        // Not the UID alone: what else fails for the claim is told separately.
        self.tell(&format!("RDMA numbers of {uid}"), renewed);
        is_lost
    }

    fn rdma_devices(&self) -> RdmaDevices {
        RdmaDevices::new(self.host.sys(), &self.host.dev())
    }

    /// A container that runs keeps the device that it has opened, or lost it with the old numbers.
    fn tell_changes(&self, plan: &Plan, changes: &[String]) {
        let claim = &plan.claim;
        for change in changes {
            tracing::warn!(%claim, change, "RDMA device renumbered");
            let text = format!(
                "claim `{claim}`: {change}; containers that start from now on get it, restart those \
                 that run"
            );
            self.effects.notices.add(Subject::Renumbered, text);
        }
    }
}
