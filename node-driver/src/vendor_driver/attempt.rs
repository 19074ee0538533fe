//! An attempt to load the vendor's driver, which survives a reboot: a node that died while its
//! modules were replaced would otherwise die again after each reboot.

use crate::prepare::durable::{self, FileError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the file in the plugin's directory.
const FILE: &str = "vendor-driver-attempt.json";

/// The attempt that began last and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attempt {
    pub(super) version: String,
    pub(super) boot_id: String,
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct AttemptFile(PathBuf);

impl AttemptFile {
    pub(super) fn of(plugin: &Path) -> Self {
        Self(plugin.join(FILE))
    }

    /// Why this version is not loaded now; `None` if nothing speaks against it.
    pub(super) fn objection(&self, version: &str, boot_id: &str) -> Option<String> {
        let text = fs::read(&self.0).ok()?;
        let attempt: Attempt = serde_json::from_slice(&text).ok()?;
        let was_interrupted = attempt.version == version && attempt.boot_id != boot_id;
        was_interrupted.then(|| {
            format!(
                "the node went down while version {version} was being loaded; find out why, then \
                 remove {} on the node",
                self.0.display()
            )
        })
    }

    pub(super) fn begin(&self, attempt: &Attempt) -> Result<(), FileError> {
        durable::write_json(&self.0, attempt)
    }

    pub(super) fn end(&self) -> Result<(), FileError> {
        durable::remove(&self.0)
    }
}
