//! What the hook did for a claim, for the driver that undoes it. Lies below a
//! directory that is empty after a boot, as are the namespaces then.

use crate::attach::netns::NetNsId;
use crate::prepare::durable::{self, FileError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Where a claim's interfaces are. Written before the first of them moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRecord {
    /// The pod's network namespace.
    pub namespace: NetNsId,
}

impl AttachRecord {
    /// Reads it; `None` where nothing was attached, or the text is damaged,
    /// which says no more.
    pub fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes it.
    pub fn store(&self, path: &Path) -> Result<(), FileError> {
        if let Some(folder) = path.parent() {
            durable::create_dir(folder)?;
        }
        durable::write_json(path, self)
    }
}
