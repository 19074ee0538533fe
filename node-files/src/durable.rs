//! Writes files atomically: after a crash a file is complete or absent.

use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file could not be written or removed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} `{}`", path.display())]
pub struct FileError {
    verb: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// Wraps an error of the system.
    pub fn new(verb: &'static str, path: &Path, source: io::Error) -> Self {
        Self { verb, path: path.to_owned(), source }
    }
}

impl FileError {
    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// Suffix of temporary files.
const TEMPORARY: &str = ".tmp";

/// Replaces a file and waits for the disk: temporary file beside it, fsync, rename, fsync
/// of the directory.
pub fn write(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let temporary = temporary_of(path);
    replace(&temporary, path, content).map_err(|source| {
        // The temporary file is useless; report the first error.
        let _ = fs::remove_file(&temporary);
        FileError::new("write", path, source)
    })
}

/// Replaces a file atomically for readers while the machine runs, without waiting for the
/// disk. For content that can be written again, or that is obsolete after a boot.
pub fn write_unsynced(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let temporary = temporary_of(path);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        FileError::new("write", path, source)
    })
}

/// Writes a value as JSON, like [`write_unsynced()`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(|error| FileError::new("write", path, error.into()))?;
    write_unsynced(path, &text)
}

/// Removes a file; an absent file is no error. Does not wait for the disk: a file that
/// reappears after a power failure belongs to no claim and is removed at start.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| FileError::new("remove", path, source)),
    }
}

/// Removes temporary files of killed writers whose names have this prefix. Call it only
/// if nobody is writing such a file now.
pub fn sweep(folder: &Path, prefix: &str) -> Result<(), FileError> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_left =
            name.to_str().is_some_and(|it| it.starts_with(prefix) && it.ends_with(TEMPORARY));
        if is_left {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The prefix of the file's temporary files.
pub fn temporaries_of(path: &Path) -> String {
    format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Removes a directory with its content; an absent directory is no error.
pub fn remove_dir(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| FileError::new("remove", path, source)),
    }
}

/// Creates a directory with its parents.
pub fn create_dir(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|source| FileError::new("create directory", path, source))
}

/// A temporary name that readers of the directory ignore.
fn temporary_of(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}{}{TEMPORARY}", temporaries_of(path), std::process::id()))
}

fn replace(temporary: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_unsynced_file_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_unsynced(&path, b"one").unwrap();
        write_unsynced(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(write_unsynced(&dir.path().join("no/a.json"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn temporary_files_of_killed_writers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let left = [".a.json.1.tmp", ".a.json.22.tmp"];
        let others = [".b.json.1.tmp", "a.json", ".a.json.1"];
        for name in left.iter().chain(&others) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let path = dir.path().join("a.json");
        assert_eq!(
            temporary_of(&path).file_name().unwrap().to_str().unwrap().find(".a.json."),
            Some(0)
        );
        sweep(dir.path(), &temporaries_of(&path)).unwrap();
        assert!(left.iter().all(|name| !dir.path().join(name).exists()));
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
    }

    #[test]
    fn a_failure_names_the_path_and_keeps_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(&dir.path().join("no/a.json"), b"x").unwrap_err();
        assert!(error.to_string().ends_with("no/a.json`"), "{error}");
    }
}
