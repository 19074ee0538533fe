//! Reads files as text, compressed or not. A short file can unpack to a thousand times its size, so what
//! is unpacked has a limit.

use flate2::bufread::MultiGzDecoder;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::OnceLock;

/// The first bytes of a gzip file (RFC 1952, 2.3.1).
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The limit in MiB, unless [`unpack_at_most`] sets another. The objects of 10,000 nodes, each with 130
/// KiB of itself, its graph, slices and ten pods with claims as `kubectl` prints them, take 1.3 GiB.
pub const UNPACKED_MIB: u32 = 2048;
/// What an object counts at least, as it takes this much memory however short its text is.
const OBJECT_MIN: u64 = 2 << 10;
/// The maximum size of an object in bytes. The API server accepts 3 MiB (`MaxRequestBodyBytes`).
pub(super) const OBJECT_MAX: u64 = 64 << 20;
/// The part of the limit for files whose objects are all in memory at once, such as YAML: as values they
/// take ten times the size of their text.
const VALUES_PART: u64 = 8;
/// The size of buffers in bytes.
const BUFFER: usize = 1 << 16;

/// The limit of the program in MiB.
static LIMIT: OnceLock<u32> = OnceLock::new();

/// Sets the limit of what is unpacked, before the first file is read.
pub fn unpack_at_most(mib: u32) {
    // A second call has no effect.
    let _ = LIMIT.set(mib);
}

/// How much may still be unpacked while the files of a cluster are read.
#[derive(Debug)]
pub(super) struct Left {
    bytes: Cell<u64>,
    /// What was unpacked since the last object.
    since: Cell<u64>,
    /// The most of that.
    object_max: u64,
    limit: u64,
}

impl Left {
    /// For files of which one object at a time is read.
    pub(super) fn for_objects() -> Self {
        Self::new(limit(), OBJECT_MAX + 2 * BUFFER as u64)
    }

    /// For a file that is read and not kept.
    pub(super) fn for_text() -> Self {
        Self::new(limit(), u64::MAX)
    }

    fn new(limit: u64, object_max: u64) -> Self {
        Self { bytes: Cell::new(limit), since: Cell::new(0), object_max, limit }
    }

    /// Counts an object, whose text was counted when it was unpacked.
    pub(super) fn count_object(&self, text: &str) -> io::Result<()> {
        self.since.set(0);
        self.take(OBJECT_MIN.saturating_sub(text.len() as u64))
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes.set(left.ok_or_else(|| {
            invalid(format!(
                "its objects take more than {} MiB when they are unpacked; allow more with \
                 --max-unpacked-mib if it is right",
                self.limit >> 20
            ))
        })?);
        Ok(())
    }
}

fn limit() -> u64 {
    u64::from(*LIMIT.get().unwrap_or(&UNPACKED_MIB)) << 20
}

/// An error of a file's content.
pub(super) fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The text of a compressed file, counted.
struct Counted<'l, R> {
    unpacked: R,
    left: &'l Left,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.unpacked.read(buffer)?;
        let Left { since, object_max, .. } = self.left;
        since.set(since.get() + read as u64);
        if since.get() > *object_max {
            return Err(invalid(format!("an object has more than {OBJECT_MAX} bytes")));
        }
        self.left.take(read as u64)?;
        Ok(read)
    }
}

/// Opens a file. Returns its text, and the limit if it is compressed.
pub(super) fn open<'l>(
    path: &Path,
    left: &'l Left,
) -> io::Result<(Box<dyn BufRead + 'l>, Option<&'l Left>)> {
    let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
    if !file.fill_buf()?.starts_with(&MAGIC) {
        return Ok((Box::new(file), None));
    }
    let text = Counted { unpacked: MultiGzDecoder::new(file), left };
    Ok((Box::new(BufReader::with_capacity(BUFFER, text)), Some(left)))
}

/// The text of a file whose objects are all in memory at once.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let left = Left::new(limit() / VALUES_PART, u64::MAX);
    let mut text = String::new();
    open(path, &left)?.0.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::{SnapshotError, load_keeping, objects};
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::error::Error;
    use std::io::Write as _;

    /// Compressed files with so many times this text, between others.
    fn bomb(begin: &str, text: &str, count: usize, end: &str) -> tempfile::TempPath {
        let file = tempfile::Builder::new().suffix(".gz").tempfile().unwrap();
        let mut packed = GzEncoder::new(file, Compression::fast());
        packed.write_all(begin.as_bytes()).unwrap();
        let block = text.repeat(1000);
        for _ in 0..count / 1000 {
            packed.write_all(block.as_bytes()).unwrap();
        }
        packed.write_all(end.as_bytes()).unwrap();
        packed.finish().unwrap().into_temp_path()
    }

    fn cause(error: &SnapshotError) -> String {
        error.source().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn short_files_that_unpack_to_much_are_refused() {
        // No other test of this program reads as much.
        unpack_at_most(256);
        let node = |name: &str| {
            format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}"}}}}"#)
        };
        let head = r#"{"apiVersion":"snapshot.dranet.io/v1","kind":"Snapshot"}"#;
        let list = r#"{"kind":"List","items":["#;
        let (line, item) = (node("a") + "\n", node("a") + ",");
        let end_of_list = node("b") + "]}";
        // Objects of less text than the limit.
        for (begin, text, end) in [(head, &line, ""), (list, &item, end_of_list.as_str())] {
            let path = bomb(&format!("{begin}\n"), text, 200_000, end);
            assert!(path.metadata().unwrap().len() < 4 << 20);
            let error = load_keeping(&path, &[]).unwrap_err();
            assert!(cause(&error).contains("--max-unpacked-mib"), "{error:?}");
        }
        // One object without end, in a list, as a text and in YAML; only spaces.
        for (begin, text) in [(list, "\"aaaaaaaaaaaaaaaa"), (r#"[""#, "aaaaaaaaaaaaaaaa")] {
            let path = bomb(begin, text, 5_000_000, "");
            load_keeping(&path, &[]).unwrap_err();
        }
        let yaml = bomb("kind: Node\n", "#aaaaaaaaaaaaaa\n", 3_000_000, "");
        for error in [load_keeping(&yaml, &[]).unwrap_err(), objects(&yaml).unwrap_err()] {
            assert!(cause(&error).contains("--max-unpacked-mib"), "{error:?}");
        }
        let object = format!(r#"{{"kind":"Node","a":"{}"}}"#, "a".repeat(1 << 20).repeat(70));
        let path = bomb(list, "", 0, &(object + "]}"));
        let error = load_keeping(&path, &[]).unwrap_err();
        assert!(cause(&error).contains("an object has more than"), "{error:?}");
    }

    #[test]
    fn lists_are_read_one_object_at_a_time() {
        let left = Left::for_objects();
        left.count_object(&"a".repeat(5000)).unwrap();
        assert_eq!(left.bytes.get(), left.limit);
        left.count_object("{}").unwrap();
        assert_eq!(left.bytes.get(), left.limit - OBJECT_MIN + 2);
    }
}
