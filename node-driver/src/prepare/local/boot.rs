//! Repairs the state at start.

use crate::kernel::attach::record::AttachRecord;
use crate::model::checkpoint::{Checkpoint, Record};
use crate::prepare::error::PrepareError;
use crate::prepare::inventory::Inventory;
use crate::prepare::local::LocalPreparer;
use crate::prepare::notices::Subject;
use crate::prepare::reconcile::{Step, holds, steps};
use crate::prepare::reserve;
use node_files::boot::boot_id;
use node_files::durable::{self, FileError};
use process::chain::Chain;
use std::collections::BTreeSet;

impl LocalPreparer {
    /// Makes the checkpoint and the machine consistent: at the start and, as nothing else works
    /// meanwhile, at any time. What fails for one claim is reported and does not stop the others;
    /// nothing that a claim does may end the driver.
    pub fn reconcile(&self) -> Result<(), PrepareError> {
        let _turn = self.turn()?;
        let mut checkpoint = self.load()?;
        reserve::keep(&self.effects.paths.reserve());
        if !self.effects.paths.checkpoint().exists() {
            // From now on, one that is absent is lost.
            self.tell("the checkpoint", self.store(&checkpoint));
        }
        self.tell("temporary files", self.sweep().map_err(PrepareError::from));
        let stale = self.stale(&mut checkpoint);
        let stale = self.tell("plans of an earlier boot", stale).unwrap_or_default();
        let restored = self.restore_former(&mut checkpoint);
        self.tell("virtual functions", restored);
        let mut files = self.claims_with_files();
        // A claim that is lost stays as it is while its sandbox lives.
        files.retain(|uid| checkpoint.claims.contains_key(uid) || !self.has_sandbox(uid));
        let lost = self.renew_all(&mut checkpoint);
        // The spec of a claim that has lost a device stays away.
        let whole = files
            .iter()
            .filter(|uid| {
                let record = checkpoint.claims.get(*uid);
                record.is_some_and(|record| self.effects.is_applied(&record.plan))
            })
            .cloned()
            .chain(lost)
            .collect();
        for step in steps(&checkpoint, &stale, &whole, &files) {
            let taken = self.take(&step, &mut checkpoint);
            if self.tell(step.uid(), taken).is_some() {
                tracing::info!(?step, "Reconciled");
            }
        }
        let told = self.tell_strayed(&checkpoint);
        self.tell("interfaces on the host", told);
        self.count(&checkpoint);
        Ok(())
    }

    /// Reports a failure, unless it is the last one again.
    pub(super) fn tell<T>(&self, about: &str, outcome: Result<T, PrepareError>) -> Option<T> {
        match outcome {
            Ok(done) => {
                self.effects.notices.settle(about);
                Some(done)
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                let text = format!("failed to repair `{about}`: {error}; the driver tries again");
                if self.effects.notices.add_new(Subject::NotUndone, about, text) {
                    tracing::warn!(about, error, "Failed to reconcile");
                }
                None
            }
        }
    }

    /// Claims that were planned in an earlier boot. Records the current boot in the
    /// others.
    fn stale(&self, checkpoint: &mut Checkpoint) -> Result<BTreeSet<String>, PrepareError> {
        let boot = boot_id(&self.host);
        let mut plans = checkpoint.claims.values().map(|record| &record.plan);
        let inventory = if plans.all(|plan| plan.boot_id.is_some() && boot.is_some()) {
            Inventory::default()
        } else {
            Inventory::read(&self.host, &self.ports)?
        };
        let mut stale = BTreeSet::new();
        let mut is_noted = true;
        for (uid, Record { plan, .. }) in &mut checkpoint.claims {
            let is_attached = AttachRecord::load(&self.effects.paths.attached(uid)).is_some();
            if !holds(plan, boot.as_deref(), is_attached, &inventory) {
                stale.insert(uid.clone());
            } else if boot.is_some() && plan.boot_id != boot {
                plan.boot_id.clone_from(&boot);
                is_noted = false;
            }
        }
        if !is_noted {
            self.store(checkpoint)?;
        }
        Ok(stale)
    }

    /// Restores virtual functions of claims that ended before this start. After a reboot there
    /// is nothing to restore.
    fn restore_former(&self, checkpoint: &mut Checkpoint) -> Result<(), PrepareError> {
        let (before, boot) = (checkpoint.unrestored.len(), boot_id(&self.host));
        checkpoint.unrestored.retain(|it| it.boot_id == boot);
        self.restore_functions(checkpoint)?;
        if checkpoint.unrestored.len() == before { Ok(()) } else { self.store(checkpoint) }
    }

    /// Removes temporary files of a killed driver. Writers hold the lock, so nobody is
    /// writing now.
    fn sweep(&self) -> Result<(), FileError> {
        let paths = &self.effects.paths;
        durable::sweep(&paths.plugin(), &durable::temporaries_of(&paths.checkpoint()))?;
        durable::sweep(&paths.plan_copies(), ".")?;
        durable::sweep(&paths.cdi, &format!(".{}", paths.cdi_prefix()))?;
        let hook = paths.hook();
        let name = hook.file_name().unwrap_or_default().to_string_lossy();
        hook.parent().map_or(Ok(()), |folder| durable::sweep(folder, &format!("{name}.")))
    }

    fn take(&self, step: &Step, checkpoint: &mut Checkpoint) -> Result<(), PrepareError> {
        let claim = checkpoint.claims.get(step.uid()).map(|record| &record.plan.claim);
        let _claim = match step {
            // It only writes what is there for hooks to read.
            Step::Repair(_) => None,
            _ => claim.map(|claim| self.try_claim(claim)).transpose()?.flatten(),
        };
        match step {
            Step::Forget(uid) => {
                self.effects.forget(uid)?;
                checkpoint.claims.remove(uid);
                self.store(checkpoint)
            }
            Step::Undo(uid) | Step::Finish(uid) => {
                let Some(record) = checkpoint.claims.get(uid).cloned() else { return Ok(()) };
                self.unwind(checkpoint, uid, &record.plan)
            }
            Step::Repair(uid) => {
                let Some(record) = checkpoint.claims.get(uid) else { return Ok(()) };
                Ok(self.effects.apply(&record.plan)?)
            }
            Step::Remove(uid) => {
                durable::remove(&self.effects.paths.cdi_spec(uid))?;
                Ok(self.effects.remove_files(uid)?)
            }
        }
    }

    /// Holds the namespaces of running pods that another instance held: an earlier one, or
    /// the one that this instance replaces, to which the hooks reported.
    pub fn take_over(&self) -> Result<(), PrepareError> {
        let _turn = self.turn()?;
        let checkpoint = self.load()?;
        for (uid, Record { plan, .. }) in &checkpoint.claims {
            if let Some(record) = AttachRecord::load(&self.effects.paths.attached(uid)) {
                self.hold_recorded(uid, &record);
                self.keep_leases(plan, &record);
            }
        }
        self.count(&checkpoint);
        Ok(())
    }

    /// Holds the recorded namespace; opens it by its name if no hook handed it over.
    pub(in crate::prepare) fn hold_recorded(&self, uid: &str, record: &AttachRecord) {
        let namespaces = &self.effects.namespaces;
        if let Some(namespace) = namespaces.find(uid, record.namespace) {
            namespaces.hold(uid, namespace);
        }
    }
}
