//! Reads a file as text, compressed or not.

use flate2::bufread::MultiGzDecoder;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// The first bytes of a gzip file (RFC 1952, 2.3.1).
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The maximum size of a text in bytes after decompression. A short file can expand to a thousand
/// times its size.
const TEXT_MAX: u64 = 4 << 30;

/// Whether a file that begins so is compressed by gzip.
pub(super) fn is_compressed(begin: &[u8]) -> bool {
    begin.starts_with(&MAGIC)
}

/// An error because of what a file contains.
pub(super) fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The text of a file.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let bytes = fs::read(path)?;
    if !is_compressed(&bytes) {
        return String::from_utf8(bytes).map_err(|error| invalid(error.to_string()));
    }
    let mut text = String::new();
    let read = MultiGzDecoder::new(&*bytes).take(TEXT_MAX).read_to_string(&mut text)?;
    if read as u64 == TEXT_MAX {
        return Err(invalid(format!("the text has more than {TEXT_MAX} bytes")));
    }
    Ok(text)
}
