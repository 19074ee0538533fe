//! Claims that nobody will unprepare: the object is gone or has another UID, the kubelet has lost
//! its state, and no sandbox has the interfaces. Until they are undone, no other claim gets their
//! NICs.

use crate::kernel::attach::record::AttachRecord;
use crate::model::checkpoint::Phase;
use crate::model::claim::ClaimRef;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::prepare::notices::Subject;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a claim's object must have been gone before a claim without a sandbox is undone:
/// its pod may have been deleted by force, and still end.
const GRACE: Duration = Duration::from_mins(5);

/// When claims were first seen without an object.
#[derive(Debug, Default)]
pub struct Abandoned(Mutex<BTreeMap<String, Instant>>);

impl Abandoned {
    /// Since when a claim is known to have no object.
    fn since(&self, uid: &str, now: Instant) -> Instant {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(uid.to_owned()).or_insert(now)
    }

    /// Forgets a claim that was unprepared, or whose object exists.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

impl LocalPreparer {
    /// The prepared claims that no sandbox is known to use.
    pub fn without_sandbox(&self) -> Result<Vec<ClaimRef>, PrepareError> {
        let _turn = self.turn()?;
        let records = self.load()?.claims.into_values();
        let prepared = records.filter(|record| record.phase == Phase::Prepared);
        let claims = prepared.map(|record| record.plan.claim);
        Ok(claims.filter(|claim| !self.has_sandbox(&claim.uid)).collect())
    }

    /// Undoes a claim whose object does not exist, unless a sandbox may have its devices. Returns
    /// whether it is undone.
    pub fn undo_abandoned(&self, claim: &ClaimRef, now: Instant) -> Result<bool, PrepareError> {
        let turn = self.turn()?;
        let since = self.abandoned.since(&claim.uid, now);
        let is_over = match self.sandbox(&claim.uid) {
            Sandbox::Lives => false,
            Sandbox::Ended => true,
            Sandbox::Unknown => now.duration_since(since) >= GRACE,
        };
        drop(turn);
        if !is_over {
            return Ok(false);
        }
        self.unprepare(&claim.uid)?;
        tracing::warn!(%claim, "Abandoned claim undone");
        let text = format!(
            "claim `{claim}` with UID `{}` was undone: its object is gone, and no pod sandbox has it",
            claim.uid
        );
        self.effects.notices.add(Subject::Abandoned, text);
        Ok(true)
    }

    /// Whether a sandbox is known to have what was attached for a claim.
    pub(super) fn has_sandbox(&self, uid: &str) -> bool {
        matches!(self.sandbox(uid), Sandbox::Lives)
    }

    fn sandbox(&self, uid: &str) -> Sandbox {
        match AttachRecord::load(&self.effects.paths.attached(uid)) {
            Some(record) if self.effects.namespaces.is_named(record.namespace) => Sandbox::Lives,
            Some(_) => Sandbox::Ended,
            None => Sandbox::Unknown,
        }
    }
}

/// What is known about the sandbox of a claim's pod.
enum Sandbox {
    /// Its network namespace has a name.
    Lives,
    /// Its network namespace has lost its name.
    Ended,
    /// Nothing was attached for the claim, so none is known.
    Unknown,
}
