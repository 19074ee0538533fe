//! The files of a tree: a directory, or an archive of one.

#![expect(clippy::disallowed_methods, reason = "the reader is where files are read")]

use super::limits::LONGEST_DOCUMENT;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::{ffi, fs};

#[cfg(feature = "archive")]
use super::archive::Archive;
#[cfg(feature = "archive")]
use std::sync::Arc;

/// The maximum size: a sysfs attribute is at most one page.
const LONGEST_ATTRIBUTE: usize = 4096;

#[derive(Clone, Debug)]
pub(super) enum Source {
    Directory(PathBuf),
    /// The archive, and the directory in it.
    #[cfg(feature = "archive")]
    Archive(Arc<Archive>, String),
}

impl Source {
    /// Checks that a directory exists.
    pub(super) fn require(&self, directory: &str) -> io::Result<()> {
        match self {
            Self::Directory(root) => fs::read_dir(root.join(directory)).map(drop),
            #[cfg(feature = "archive")]
            Self::Archive(archive, root) => archive.names(&format!("{root}/{directory}")).map(drop),
        }
    }

    /// The names in a directory, unordered; names that are not UTF-8 are skipped.
    pub(super) fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        match self {
            Self::Directory(root) => {
                let entries = fs::read_dir(root.join(directory))?;
                let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
                let names: Vec<ffi::OsString> = names.collect::<io::Result<_>>()?;
                Ok(names
                    .into_iter()
                    .map(ffi::OsString::into_string)
                    .filter_map(Result::ok)
                    .collect())
            }
            #[cfg(feature = "archive")]
            Self::Archive(archive, root) => archive.names(&format!("{root}/{directory}")),
        }
    }

    /// The first page of a file.
    pub(super) fn page(&self, path: &str) -> io::Result<Vec<u8>> {
        self.head(path, LONGEST_ATTRIBUTE)
    }

    /// A whole file, up to the maximum size of a document.
    pub(super) fn document(&self, path: &str) -> io::Result<Vec<u8>> {
        let bytes = self.head(path, LONGEST_DOCUMENT + 1)?;
        if bytes.len() > LONGEST_DOCUMENT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    }

    fn head(&self, path: &str, length: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Directory(root) => {
                let mut bytes = Vec::new();
                let length = u64::try_from(length).map_err(io::Error::other)?;
                fs::File::open(root.join(path))?.take(length).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            #[cfg(feature = "archive")]
            Self::Archive(archive, root) => {
                let mut bytes = archive.file(&format!("{root}/{path}"))?;
                bytes.truncate(length);
                Ok(bytes)
            }
        }
    }

    /// A little-endian word; `None` beyond the end of the file.
    pub(super) fn word(&self, path: &str, offset: u32) -> io::Result<Option<u32>> {
        let mut bytes = [0; 4];
        match self {
            Self::Directory(root) => {
                let file = fs::File::open(root.join(path))?;
                let read = file.read_at(&mut bytes, u64::from(offset))?;
                Ok((read == bytes.len()).then(|| u32::from_le_bytes(bytes)))
            }
            #[cfg(feature = "archive")]
            Self::Archive(archive, root) => {
                let page = archive.file(&format!("{root}/{path}"))?;
                let at = usize::try_from(offset).map_err(io::Error::other)?;
                let word = page.get(at..).and_then(|rest| rest.first_chunk());
                Ok(word.map(|word| u32::from_le_bytes(*word)))
            }
        }
    }

    /// The target of a link, unresolved.
    pub(super) fn target(&self, path: &str) -> io::Result<String> {
        match self {
            Self::Directory(root) => {
                Ok(fs::read_link(root.join(path))?.to_string_lossy().into_owned())
            }
            #[cfg(feature = "archive")]
            Self::Archive(archive, root) => archive.target(&format!("{root}/{path}")),
        }
    }
}
