//! Where the history of looks is kept: NICs as they were before pods got them, which survives restarts of the
//! driver, and the NICs that the machine has had, which survives reboots.

use node_files::boot_file::BootFile;
use node_files::durable;
use process::chain::Chain;
use publication::history::{History, Seen};
use publication::rails::KnownRails;
use std::fs;
use std::path::PathBuf;
use topology_graph::HostRoot;

/// The file that records NICs as they were before pods got them, and the version of its format.
const SEEN: (&str, u32) = ("nics.json", 2);

/// The files.
#[derive(Debug)]
pub(crate) struct HistoryFiles {
    seen: Option<BootFile<Seen>>,
    rails: Option<PathBuf>,
}

impl HistoryFiles {
    /// Those of this machine; without a path for the rails, these are not kept.
    pub(crate) fn new(host: &HostRoot, rails: Option<PathBuf>) -> Self {
        Self { seen: BootFile::new(host, SEEN.0, SEEN.1), rails }
    }

    /// The history that an earlier driver left.
    pub(crate) fn load(&self) -> History {
        let seen = self.seen.as_ref().and_then(BootFile::load).unwrap_or_default();
        let rails = self.rails.as_ref().and_then(|file| fs::read(file).ok());
        // An unreadable file is the same as none: the NICs are counted as they are.
        let rails = rails.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        History { seen, rails, ..History::default() }
    }

    /// Stores what has changed.
    pub(crate) fn store(&self, before: &History, after: &History) {
        if before.rails != after.rails {
            self.store_rails(&after.rails);
        }
        if before.seen != after.seen
            && let Some(Err(error)) = self.seen.as_ref().map(|file| file.store(&after.seen))
        {
            let error = Chain(&error);
            tracing::warn!(%error, "State of NICs not saved for a restart");
        }
    }

    fn store_rails(&self, rails: &KnownRails) {
        let Some(file) = &self.rails else { return };
        let stored = file.parent().map_or(Ok(()), durable::create_dir);
        if let Err(error) = stored.and_then(|()| durable::write_json(file, rails)) {
            tracing::warn!(error = %Chain(&error), "Rails not saved for a reboot");
        }
    }
}
