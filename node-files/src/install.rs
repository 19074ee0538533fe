//! Installs the driver's binary where the container runtime can start it as the attach
//! hook. It is replaced by rename, so that a container that starts during an upgrade runs
//! either the old or the new binary.

use crate::durable::FileError;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Bytes that are compared at once.
const CHUNK: usize = 64 << 10;

/// Why the container runtime could not start the hook.
const NO_EXEC: &str =
    "its file system is mounted `noexec`; mount it without, or choose another --kubelet-dir";

/// Copies the running binary to `target`, unless it is there.
pub fn install(target: &Path) -> Result<(), FileError> {
    install_from(Path::new("/proc/self/exe"), target)
}

fn install_from(source: &Path, target: &Path) -> Result<(), FileError> {
    let copied = if is_there(source, target) { Ok(()) } else { copy(source, target) };
    copied
        .and_then(|()| check_executable(target))
        .map_err(|source| FileError::new("install", target, source))
}

/// Fails now instead of failing each container that starts.
fn check_executable(target: &Path) -> io::Result<()> {
    let is_noexec = statvfs(target)?.f_flag.contains(StatVfsMountFlags::NOEXEC);
    if is_noexec { Err(io::Error::other(NO_EXEC)) } else { Ok(()) }
}

/// Whether the target is the same program. A full disk then changes nothing.
fn is_there(source: &Path, target: &Path) -> bool {
    let is_executable =
        fs::metadata(target).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
    is_executable && is_same(source, target).unwrap_or_default()
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    if fs::metadata(one)?.len() != fs::metadata(other)?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let count = one.read(&mut ours)?;
        other.read_exact(&mut theirs[..count])?;
        if count == 0 || ours[..count] != theirs[..count] {
            return Ok(count == 0);
        }
    }
}

fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let folder = target.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let temporary = target.with_extension(format!("{}.tmp", std::process::id()));
    let replaced = replace(source, &temporary, target, folder);
    if replaced.is_err() {
        // What was written of it takes room on a full disk.
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

fn replace(source: &Path, temporary: &Path, target: &Path, folder: &Path) -> io::Result<()> {
    fs::copy(source, temporary)?;
    fs::set_permissions(temporary, Permissions::from_mode(0o755))?;
    File::open(temporary)?.sync_all()?;
    fs::rename(temporary, target)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_same_program_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("new"), folder.path().join("bin/hook"));
        fs::write(&source, "one").unwrap();
        let inode = || fs::metadata(&target).unwrap().ino();
        install_from(&source, &target).unwrap();
        let before = inode();
        install_from(&source, &target).unwrap();
        assert_eq!(inode(), before);
        for other in ["two", "longer"] {
            fs::write(&source, other).unwrap();
            install_from(&source, &target).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), other);
        }
        // Not executable: it is replaced.
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        install_from(&source, &target).unwrap();
        assert!(is_there(&source, &target));
    }
}
