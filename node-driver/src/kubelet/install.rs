//! Installs the driver's binary where the container runtime can start it as the attach
//! hook. It is replaced by rename, so that a container that starts during an upgrade runs
//! either the old or the new binary.

use crate::prepare::durable::FileError;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Why the container runtime could not start the hook.
const NO_EXEC: &str =
    "its file system is mounted `noexec`; mount it without, or choose another --kubelet-dir";

/// Copies the running binary to `target`.
pub(crate) fn install(target: &Path) -> Result<(), FileError> {
    copy(Path::new("/proc/self/exe"), target)
        .and_then(|()| check_executable(target))
        .map_err(|source| FileError::new("install", target, source))
}

/// Fails now instead of failing each container that starts.
fn check_executable(target: &Path) -> io::Result<()> {
    let is_noexec = statvfs(target)?.f_flag.contains(StatVfsMountFlags::NOEXEC);
    if is_noexec { Err(io::Error::other(NO_EXEC)) } else { Ok(()) }
}

fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let folder = target.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let temporary = target.with_extension(format!("{}.tmp", std::process::id()));
    fs::copy(source, &temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(0o755))?;
    File::open(&temporary)?.sync_all()?;
    fs::rename(&temporary, target)?;
    File::open(folder)?.sync_all()
}
