//! Exclusive rights, across all instances of the driver and its hooks: to change the state of claims, and to
//! attach or undo one claim.

use crate::durable::FileError;
use crate::paths::Paths;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Waits for the right to change the state of claims, and takes it. It ends when the file is dropped.
pub fn take(paths: &Paths) -> Result<File, FileError> {
    lock_state(paths).map_err(|source| FileError::new("lock", &paths.lock(), source))
}

fn lock_state(paths: &Paths) -> io::Result<File> {
    fs::create_dir_all(paths.plugin())?;
    let file = File::options().create(true).append(true).open(paths.lock())?;
    file.lock()?;
    Ok(file)
}

/// The right to attach or undo one claim.
#[derive(Debug)]
pub enum ClaimTurn {
    /// It is taken, until the file is dropped.
    Taken(File),
    /// The claim has no folder, so that nothing can attach it.
    NoFolder,
    /// Somebody else has it.
    Busy,
}

/// Waits for the right to attach or undo the claim that has this folder, and takes it; `None` if there is no
/// folder. Whoever takes both rights takes this one first.
pub fn take_claim(folder: &Path) -> Result<Option<File>, FileError> {
    match claim(folder, |file| file.lock().map(|()| true))? {
        ClaimTurn::Taken(file) => Ok(Some(file)),
        ClaimTurn::NoFolder | ClaimTurn::Busy => Ok(None),
    }
}

/// The same without waiting.
pub fn try_claim(folder: &Path) -> Result<ClaimTurn, FileError> {
    claim(folder, |file| match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    })
}

fn claim(folder: &Path, lock: impl Fn(&File) -> io::Result<bool>) -> Result<ClaimTurn, FileError> {
    lock_folder(folder, lock).map_err(|source| FileError::new("lock", folder, source))
}

fn lock_folder(folder: &Path, lock: impl Fn(&File) -> io::Result<bool>) -> io::Result<ClaimTurn> {
    loop {
        let file = match File::open(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ClaimTurn::NoFolder),
            opened => opened?,
        };
        if !lock(&file)? {
            return Ok(ClaimTurn::Busy);
        }
        // Whoever had the lock may have removed the folder, and another one may have its name now.
        if fs::metadata(folder).is_ok_and(|now| is_same(&file, &now)) {
            return Ok(ClaimTurn::Taken(file));
        }
    }
}

fn is_same(file: &File, now: &fs::Metadata) -> bool {
    file.metadata().is_ok_and(|opened| (opened.dev(), opened.ino()) == (now.dev(), now.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_locked_by_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("c-1");
        assert!(take_claim(&folder).unwrap().is_none(), "no folder");
        assert!(matches!(try_claim(&folder), Ok(ClaimTurn::NoFolder)), "no folder");
        fs::create_dir(&folder).unwrap();
        let taken = take_claim(&folder).unwrap();
        assert!(taken.is_some());
        assert!(matches!(try_claim(&folder), Ok(ClaimTurn::Busy)), "it is taken");
        // The one that undoes the claim removes the folder.
        fs::remove_dir(&folder).unwrap();
        assert!(matches!(try_claim(&folder), Ok(ClaimTurn::NoFolder)));
        fs::create_dir(&folder).unwrap();
        assert!(
            matches!(try_claim(&folder), Ok(ClaimTurn::Taken(_))),
            "another folder of that name"
        );
        drop(taken);
    }
}
