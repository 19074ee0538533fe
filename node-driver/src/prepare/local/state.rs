//! State of the driver's claims on disk: the checkpoint, and the turn to change it.

use crate::model::checkpoint::{Checkpoint, CheckpointError, Loaded, Phase, Record};
use crate::model::claim::{ClaimRef, is_safe_uid};
use crate::model::plan::Plan;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::prepare::notices::Subject;
use crate::prepare::reserve;
use node_files::turn::{self, ClaimTurn};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

impl LocalPreparer {
    /// Records the phase of a claim. Does not wait for the disk, which can take longer than all
    /// else: what is written survives the end of this process. After a power failure, claims of the
    /// boot before are planned again when the kubelet asks, whether the checkpoint has them or not,
    /// and files without a record are removed at start.
    pub(super) fn set(
        &self,
        checkpoint: &mut Checkpoint,
        plan: &Plan,
        phase: Phase,
    ) -> Result<(), PrepareError> {
        let record = Record { phase, plan: plan.clone() };
        checkpoint.claims.insert(plan.claim.uid.clone(), record);
        let path = self.effects.paths.checkpoint();
        match phase {
            Phase::Preparing | Phase::Prepared => checkpoint.note(&path)?,
            Phase::Unpreparing => self.write_anyway(Checkpoint::note, checkpoint)?,
        }
        self.written(checkpoint);
        Ok(())
    }

    pub(super) fn store(&self, checkpoint: &Checkpoint) -> Result<(), PrepareError> {
        self.write_anyway(Checkpoint::store, checkpoint)?;
        self.written(checkpoint);
        Ok(())
    }

    /// Writes the checkpoint, on a full disk into the reserved room, which is for claims that end.
    fn write_anyway(
        &self,
        write: fn(&Checkpoint, &Path) -> Result<(), CheckpointError>,
        checkpoint: &Checkpoint,
    ) -> Result<(), CheckpointError> {
        let paths = &self.effects.paths;
        let path = paths.checkpoint();
        match write(checkpoint, &path) {
            Err(error) if error.is_full() && reserve::release(&paths.reserve()) => {
                write(checkpoint, &path)
            }
            written => written,
        }
    }

    fn written(&self, checkpoint: &Checkpoint) {
        self.ended.clear();
        reserve::keep(&self.effects.paths.reserve());
        self.count(checkpoint);
    }

    /// Takes the exclusive right to change anything; it ends when dropped.
    pub(in crate::prepare) fn turn(&self) -> Result<File, PrepareError> {
        Ok(turn::take(&self.effects.paths)?)
    }

    /// Takes the right to undo a claim, which nobody may be attaching. It ends when dropped.
    pub(super) fn try_claim(&self, claim: &ClaimRef) -> Result<Option<File>, PrepareError> {
        match turn::try_claim(&self.effects.paths.claim(&claim.uid))? {
            ClaimTurn::Taken(file) => Ok(Some(file)),
            ClaimTurn::NoFolder => Ok(None),
            ClaimTurn::Busy => Err(PrepareError::Starting { claim: claim.clone() }),
        }
    }

    /// Loads the checkpoint. One that is damaged or lost is rebuilt from the plans of the claims.
    pub(in crate::prepare) fn load(&self) -> Result<Checkpoint, PrepareError> {
        let path = self.effects.paths.checkpoint();
        match Checkpoint::load(&path)? {
            Loaded::Absent => {
                let rebuilt = self.rebuild(&self.planned());
                if !rebuilt.claims.is_empty() {
                    self.tell_rebuilt("is lost", &rebuilt);
                    rebuilt.store(&path)?;
                }
                Ok(rebuilt)
            }
            Loaded::Read(mut checkpoint) => {
                self.ended.remove_from(&mut checkpoint);
                Ok(checkpoint)
            }
            Loaded::Damaged { set_aside, problem } => {
                let files = self.claims_with_files();
                let rebuilt = self.rebuild(&files);
                for uid in files.iter().filter(|uid| !rebuilt.claims.contains_key(*uid)) {
                    self.tell_lost(uid);
                }
                let how = format!("is damaged ({problem}), and kept as `{}`", set_aside.display());
                self.tell_rebuilt(&how, &rebuilt);
                rebuilt.store(&path)?;
                Ok(rebuilt)
            }
        }
    }

    /// Rebuilds the checkpoint from the plans of claims. A claim whose CDI spec exists was prepared; others
    /// were being prepared or unprepared.
    fn rebuild(&self, uids: &BTreeSet<String>) -> Checkpoint {
        let claims = uids.iter().filter_map(|uid| {
            let phase = if self.effects.paths.cdi_spec(uid).is_file() {
                Phase::Prepared
            } else {
                Phase::Unpreparing
            };
            let plan = self.plan_of(uid)?;
            Some((uid.clone(), Record { phase, plan }))
        });
        Checkpoint { claims: claims.collect(), ..Checkpoint::default() }
    }

    /// The plan of a claim by its file or, if that is damaged, by its copy.
    fn plan_of(&self, uid: &str) -> Option<Plan> {
        let paths = &self.effects.paths;
        [paths.plan(uid), paths.plan_copy(uid)]
            .iter()
            .find_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
    }

    /// Says that the checkpoint was rebuilt.
    fn tell_rebuilt(&self, how: &str, rebuilt: &Checkpoint) {
        let claims = rebuilt.claims.len();
        let text = format!(
            "the checkpoint of claims {how}; the driver has rebuilt it from the plans of {claims} claims: \
             check the node's disk"
        );
        tracing::error!(claims, how, "Checkpoint rebuilt");
        self.effects.notices.add(Subject::Rebuilt, text);
    }

    /// Says that a claim is forgotten, because nothing tells any more what was prepared for it.
    fn tell_lost(&self, uid: &str) {
        let text = format!(
            "the checkpoint and the plan of the claim with UID {uid} are damaged: the driver does not know \
             what it has prepared for it; delete the pod that uses the claim, and check that its NICs are \
             on the host with their settings"
        );
        tracing::error!(uid, "Claim lost");
        self.effects.notices.add_new(Subject::Lost, &format!("loss of {uid}"), text);
    }

    /// UIDs of claims of which the memory has a plan.
    fn planned(&self) -> BTreeSet<String> {
        let names = names_in(&self.effects.paths.plan_copies()).into_iter();
        let uids = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()));
        uids.filter(|uid| is_safe_uid(uid)).collect()
    }

    /// UIDs of claims that have any files.
    pub(super) fn claims_with_files(&self) -> BTreeSet<String> {
        let paths = &self.effects.paths;
        let specs = names_in(&paths.cdi).into_iter().filter_map(|name| {
            let uid = name.strip_prefix(&paths.cdi_prefix())?.strip_suffix(".json")?;
            Some(uid.to_owned())
        });
        let folders = names_in(&paths.claims());
        specs.chain(folders).filter(|uid| is_safe_uid(uid)).chain(self.planned()).collect()
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
