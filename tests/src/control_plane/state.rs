//! The directory of a control plane, and the removal of directories of killed processes.

use std::{env, fs, path::Path, process};

use anyhow::Context;
use tempfile::TempDir;

const PREFIX: &str = "dranet-control-plane-";

/// Creates a directory that is named after this process and removed when dropped.
pub(super) fn directory() -> anyhow::Result<TempDir> {
    let parent = env::temp_dir();
    sweep(&parent);
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", process::id()))
        .tempdir_in(&parent)
        .with_context(|| format!("failed to make a directory in `{}`", parent.display()))
}

/// Removes the directories of processes that no longer run. A directory that cannot be removed
/// belongs to another user and stays.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn owner(directory: &str) -> Option<u32> {
    directory.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_left_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        // Above the kernel's greatest pid_max, 2^22.
        let dead = format!("{PREFIX}4194305-abc");
        let alive = format!("{PREFIX}{}-abc", process::id());
        let foreign = "somebody-else-4194305-abc";
        for name in [&*dead, &*alive, foreign] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        sweep(parent.path());
        let left = |name| parent.path().join(name).exists();
        assert!(!left(&*dead) && left(&*alive) && left(foreign));
    }
}
