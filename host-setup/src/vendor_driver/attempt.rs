//! The last attempt to load the vendor's driver, which survives a reboot: a node that died while its
//! modules were replaced would otherwise die again after each reboot. It also tells which version the
//! node has loaded before.

use node_files::durable::{self, FileError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the file in the plugin's directory.
const FILE: &str = "vendor-driver-attempt.json";

/// The attempt that began last, unless it failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attempt {
    pub(super) version: String,
    pub(super) boot_id: String,
    /// Whether the version was loaded.
    #[serde(default)]
    pub(super) is_loaded: bool,
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct AttemptFile(PathBuf);

impl AttemptFile {
    pub(super) fn new(plugin: &Path) -> Self {
        Self(plugin.join(FILE))
    }

    /// Why this version is not loaded now; `None` if nothing speaks against it.
    pub(super) fn objection(&self, version: &str, boot_id: &str) -> Option<String> {
        let attempt = self.load()?;
        let is_other_boot = attempt.version == version && attempt.boot_id != boot_id;
        let was_interrupted = is_other_boot && !attempt.is_loaded;
        was_interrupted.then(|| {
            format!(
                "the node went down while version {version} was being loaded; find out why, then \
                 remove {} on the node",
                self.0.display()
            )
        })
    }

    /// Whether this version was the last one that the node has loaded.
    pub(super) fn was_loaded(&self, version: &str) -> bool {
        self.load().is_some_and(|attempt| attempt.is_loaded && attempt.version == version)
    }

    pub(super) fn store(&self, attempt: &Attempt) -> Result<(), FileError> {
        durable::write_json(&self.0, attempt)
    }

    pub(super) fn remove(&self) -> Result<(), FileError> {
        durable::remove(&self.0)
    }

    fn load(&self) -> Option<Attempt> {
        serde_json::from_slice(&fs::read(&self.0).ok()?).ok()
    }
}
