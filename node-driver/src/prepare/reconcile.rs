//! At start: what the checkpoint says against what is there. A pure decision;
//! its effects are those of preparing and unpreparing.

use crate::checkpoint::{Checkpoint, Phase};
use std::collections::BTreeSet;

/// What is to be done for one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nobody was told of it: undone.
    Undo(String),
    /// On its way out: finished.
    Finish(String),
    /// Promised, and its files are missing: made again.
    Repair(String),
    /// Files of a claim that the checkpoint does not know: removed.
    Remove(String),
}

/// Decides. `whole` are the claims whose files are all there, `files` those of
/// which there is any.
pub(super) fn steps(
    checkpoint: &Checkpoint,
    whole: &BTreeSet<String>,
    files: &BTreeSet<String>,
) -> Vec<Step> {
    let known = checkpoint.claims.iter().filter_map(|(uid, record)| match record.phase {
        Phase::Preparing => Some(Step::Undo(uid.clone())),
        Phase::Unpreparing => Some(Step::Finish(uid.clone())),
        Phase::Prepared if !whole.contains(uid) => Some(Step::Repair(uid.clone())),
        Phase::Prepared => None,
    });
    let is_orphan = |uid: &&String| !checkpoint.claims.contains_key(*uid);
    known.chain(files.iter().filter(is_orphan).cloned().map(Step::Remove)).collect()
}
