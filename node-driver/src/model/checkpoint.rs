//! The claims that this driver has prepared on this node, kept across its restarts: one
//! file with a version and a checksum, keyed by claim UID.
//!
//! It is not a cache: a file that cannot be read is set aside and reported; nothing is
//! guessed.

use crate::model::claim::ClaimRef;
use crate::model::plan::{Plan, PlannedDevice, PlannedFunction};
use node_files::durable::{self, FileError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The version of the format.
pub const VERSION: u32 = 2;

/// The number of damaged files that are kept.
const SET_ASIDE_MAX: u32 = 10;

/// Claims by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Claims that are prepared, being prepared or being unprepared.
    pub claims: BTreeMap<String, Record>,
    /// Virtual functions whose settings could not be restored, because their physical functions
    /// were absent when the claims ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrestored: Vec<Unrestored>,
}

/// A virtual function that still has settings of an ended claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unrestored {
    /// The claim.
    pub claim: ClaimRef,
    /// The virtual function's device name.
    pub device: String,
    /// The virtual function with the settings to restore.
    pub function: PlannedFunction,
    /// The boot in which they were set. The next boot resets the hardware's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its progress.
    pub phase: Phase,
    /// What it gets on this node.
    pub plan: Plan,
}

/// The progress of a claim. Written before the first effect in each direction that is more than a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Effects may be partly applied, and the kubelet was not told: to be undone.
    Preparing,
    /// The kubelet has been told, or may have been.
    Prepared,
    /// Effects may be partly removed: the removal must be completed.
    Unpreparing,
}

/// Format of the file.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    checksum: String,
    data: Box<serde_json::value::RawValue>,
}

/// The result of reading the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Loaded {
    /// No file: a new node, or the kubelet's directory was emptied.
    Absent,
    /// The checkpoint.
    Read(Checkpoint),
    /// The file is damaged; it was renamed.
    Damaged {
        /// Its new path.
        set_aside: PathBuf,
        /// What was wrong.
        problem: String,
    },
}

/// The checkpoint could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is from a newer driver.
    #[error("checkpoint `{}` has version {version}, this driver reads {VERSION}; run the newer driver again, or drain the node and remove the file", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

impl Unrestored {
    /// The virtual function of a device, if the plan sets any of it.
    fn of(device: &PlannedDevice, plan: &Plan) -> Option<Self> {
        Some(Self {
            claim: plan.claim.clone(),
            device: device.device.clone(),
            function: device.function.clone()?,
            boot_id: plan.boot_id.clone(),
        })
    }
}

impl Checkpoint {
    /// Records that the settings of the plan's virtual functions must be restored.
    pub fn add_unrestored(&mut self, plan: &Plan) {
        for it in plan.devices.iter().filter_map(|device| Unrestored::of(device, plan)) {
            if !self.unrestored.contains(&it) {
                self.unrestored.push(it);
            }
        }
    }

    /// Reads the file. A damaged file is renamed, so that the next write does not destroy what
    /// an administrator may want to inspect.
    pub fn load(path: &Path) -> Result<Loaded, CheckpointError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Loaded::Absent),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return set_aside(path, "it is not text".to_owned());
            }
            Err(source) => return Err(FileError::new("read", path, source).into()),
        };
        match parse(&text) {
            Ok(checkpoint) => Ok(Loaded::Read(checkpoint)),
            Err(Problem::Newer(version)) => {
                Err(CheckpointError::Newer { path: path.to_owned(), version })
            }
            Err(Problem::Damaged(problem)) => set_aside(path, problem),
        }
    }

    /// Reads the text of a file.
    pub fn from_text(text: &str) -> Option<Self> {
        parse(text).ok()
    }

    /// Reads the file without changing it; `None` if there is none or it cannot be read.
    pub fn peek(path: &Path) -> Option<Self> {
        parse(&fs::read_to_string(path).ok()?).ok()
    }

    /// The text of a file.
    pub fn to_text(&self) -> serde_json::Result<Vec<u8>> {
        let data = serde_json::value::to_raw_value(self)?;
        serde_json::to_vec(&File { version: VERSION, checksum: checksum(data.get()), data })
    }

    /// Replaces the file and waits until it is on the disk.
    pub fn store(&self, path: &Path) -> Result<(), CheckpointError> {
        Ok(durable::write(path, &self.text_for(path)?)?)
    }

    /// Replaces the file for readers during this boot, without waiting for the disk. Only for
    /// changes that do not matter after a power failure, or that the next start detects.
    pub fn note(&self, path: &Path) -> Result<(), CheckpointError> {
        Ok(durable::write_unsynced(path, &self.text_for(path)?)?)
    }

    fn text_for(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        self.to_text().map_err(|error| FileError::new("write", path, error.into()))
    }
}

impl CheckpointError {
    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File(error) if error.is_full())
    }
}

enum Problem {
    Newer(u32),
    Damaged(String),
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

fn parse(text: &str) -> Result<Checkpoint, Problem> {
    let Version { version } = serde_json::from_str(text)?;
    match version {
        VERSION => {
            let file: File = serde_json::from_str(text)?;
            if file.checksum != checksum(file.data.get()) {
                return Err(Problem::Damaged("its checksum is wrong".to_owned()));
            }
            Ok(serde_json::from_str(file.data.get())?)
        }
        newer if newer > VERSION => Err(Problem::Newer(newer)),
        unknown => Err(Problem::Damaged(format!("it has version {unknown}"))),
    }
}

fn checksum(data: &str) -> String {
    Sha256::digest(data.as_bytes())
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn set_aside(path: &Path, problem: String) -> Result<Loaded, CheckpointError> {
    // If the maximum number of files exists already, the last one is overwritten.
    let mut candidates =
        (0..SET_ASIDE_MAX).map(|number| path.with_extension(format!("damaged-{number}")));
    let free =
        candidates.clone().find(|candidate| !candidate.exists()).or_else(|| candidates.next_back());
    let free = free.unwrap_or_else(|| path.with_extension("damaged"));
    fs::rename(path, &free).map_err(|source| FileError::new("set aside", path, source))?;
    Ok(Loaded::Damaged { set_aside: free, problem })
}

#[cfg(test)]
mod tests;
