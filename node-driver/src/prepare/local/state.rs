//! State of the driver's claims on disk: the checkpoint, and the turn to change it.

use crate::model::checkpoint::{Checkpoint, CheckpointError, Loaded, Phase, Record};
use crate::model::claim::is_safe_uid;
use crate::model::plan::Plan;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::prepare::reserve;
use node_files::turn;
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

    /// Loads the checkpoint. A damaged one is rebuilt from the plans of the claims.
    pub(in crate::prepare) fn load(&self) -> Result<Checkpoint, PrepareError> {
        let path = self.effects.paths.checkpoint();
        match Checkpoint::load(&path)? {
            Loaded::Absent => Ok(Checkpoint::default()),
            Loaded::Read(mut checkpoint) => {
                self.ended.remove_from(&mut checkpoint);
                Ok(checkpoint)
            }
            Loaded::Damaged { set_aside, problem } => {
                let set_aside = set_aside.display();
                let rebuilt = self.rebuild();
                let claims = rebuilt.claims.len();
                tracing::error!(%set_aside, problem, claims, "Checkpoint damaged, rebuilt");
                rebuilt.store(&path)?;
                Ok(rebuilt)
            }
        }
    }

    /// Rebuilds the checkpoint from the plans. A claim whose CDI spec exists was prepared; others
    /// were being prepared or unprepared.
    fn rebuild(&self) -> Checkpoint {
        let paths = &self.effects.paths;
        let claims = self
            .claims_with_files()
            .into_iter()
            .filter_map(|uid| {
                let plan: Plan = serde_json::from_slice(&fs::read(paths.plan(&uid)).ok()?).ok()?;
                let phase = if paths.cdi_spec(&uid).is_file() {
                    Phase::Prepared
                } else {
                    Phase::Unpreparing
                };
                Some((uid, Record { phase, plan }))
            })
            .collect();
        Checkpoint { claims, ..Checkpoint::default() }
    }

    /// UIDs of claims that have any files.
    pub(super) fn claims_with_files(&self) -> BTreeSet<String> {
        let paths = &self.effects.paths;
        let specs = names_in(&paths.cdi).into_iter().filter_map(|name| {
            let uid = name.strip_prefix(&paths.cdi_prefix())?.strip_suffix(".json")?;
            Some(uid.to_owned())
        });
        let folders = names_in(&paths.claims());
        specs.chain(folders).filter(|uid| is_safe_uid(uid)).collect()
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
