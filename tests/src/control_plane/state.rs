//! The directory of a control plane, and the removal of directories of killed processes.

use std::{
    env,
    fs::{self, File},
    path::Path,
};

use anyhow::Context;
use tempfile::TempDir;

const PREFIX: &str = "dranet-control-plane-";

/// A file in the directory that its process keeps locked. A process ID would not identify the
/// process, since another suite may run in a separate PID namespace.
const LOCK: &str = "lock";

/// A directory of this process, removed when dropped.
#[derive(Debug)]
pub(super) struct StateDirectory {
    folder: TempDir,
    _lock: File,
}

impl StateDirectory {
    /// Creates it, and removes those of processes that no longer run.
    pub(super) fn new() -> anyhow::Result<Self> {
        let parent = env::temp_dir();
        sweep(&parent);
        Self::under(&parent)
            .with_context(|| format!("failed to make a directory in `{}`", parent.display()))
    }

    fn under(parent: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // A directory without this file is never removed.
        let new = folder.path().join("new");
        let lock = File::create(&new)?;
        lock.try_lock()?;
        fs::rename(new, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes directories whose lock no process holds. A directory that cannot be removed belongs to
/// another user and stays.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let lock = is_ours.then(|| File::open(entry.path().join(LOCK)));
        if let Some(Ok(lock)) = lock
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Check, eventually};

    #[tokio::test]
    async fn only_directories_of_dead_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let alive = StateDirectory::under(parent.path()).unwrap();
        let dead = StateDirectory::under(parent.path()).unwrap();
        // The lock of a killed process goes, and its directory stays.
        let StateDirectory { folder: dead, _lock: lock } = dead;
        drop(lock);
        let dead = dead.keep();
        let foreign = parent.path().join("somebody-else");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(LOCK), "").unwrap();
        // A child that another test of this process starts has the lock too, until its `exec`.
        eventually(Duration::from_secs(10), async || {
            sweep(parent.path());
            Ok(Check::that(!dead.exists(), || "the dead one's directory is still there".to_owned()))
        })
        .await
        .unwrap();
        assert!(alive.path().exists() && foreign.exists());
    }
}
