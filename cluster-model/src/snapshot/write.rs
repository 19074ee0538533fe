//! Writes a cluster into one file.

use super::SnapshotError;
use super::archive::Head;
use super::gather::Gathered;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, Write as _};
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
    let mut file = File::create(partial)?;
    let mut begin = GzEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut begin, head)?;
    begin.write_all(b"\n")?;
    // Consecutive gzip members form one text (RFC 1952, 2.2).
    file.write_all(&begin.finish()?)?;
    file.write_all(objects.compressed())?;
    fs::rename(partial, path)
}
