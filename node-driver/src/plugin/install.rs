//! The driver's own binary where the container runtime can start it as the
//! attach hook: put there by rename, so that a container that starts during an
//! upgrade runs the old one or the new one, whole.

use crate::prepare::durable::FileError;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Copies the running binary.
pub(super) fn install(target: &Path) -> Result<(), FileError> {
    copy(Path::new("/proc/self/exe"), target)
        .map_err(|source| FileError::new("install", target, source))
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
