//! Writes a cluster into one file.

use super::SnapshotError;
use super::archive::Head;
use super::gather::Gathered;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a snapshot: the head, then the objects in order. An existing file with the name stays
/// until the new one is complete.
pub fn write(path: &Path, head: &Head, objects: &Gathered) -> Result<(), SnapshotError> {
    replace(path, head, objects)
        .map_err(|source| SnapshotError::Write { path: path.to_owned(), source })
}

fn replace(path: &Path, head: &Head, objects: &Gathered) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    let partial = Path::new(&name);
    let mut file = create_private(partial)?;
    let mut begin = GzEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut begin, head)?;
    begin.write_all(b"\n")?;
    // Consecutive gzip members form one text (RFC 1952, 2.2).
    file.write_all(&begin.finish()?)?;
    file.write_all(objects.compressed())?;
    fs::rename(partial, path)
}

/// How to write files that only their user can read: they have names of tenants, or of a machine.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    options.mode(0o600);
    options
}

/// Creates such a file. What has its name is removed first, so it may not lead to another file.
fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => private().create_new(true).open(path),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn others_cannot_read_a_snapshot_or_lead_it_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("snapshot.partial"), folder.path().join("other"));
        fs::write(&other, "theirs").unwrap();
        symlink(&other, &path).unwrap();
        create_private(&path).unwrap().write_all(b"ours").unwrap();
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&other).unwrap(), "theirs");
        create_private(&path).unwrap();
    }
}
