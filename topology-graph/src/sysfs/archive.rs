//! A machine's files in memory, from a tar archive (plain, gzip or bzip2).
//!
//! Nothing is unpacked to disk, and links are resolved by name inside the archive, so nothing in it
//! can point outside. Its content is untrusted: any bytes are either an error or a machine, never a
//! panic, and never use more memory than the limit.

use std::collections::BTreeMap;
use std::io::{self, Read};

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use tar::{Archive as TarArchive, EntryType};

use super::limits::LONGEST_DOCUMENT;

/// The maximum size of the unpacked content. A whole machine is about 10 MB.
const LARGEST_UNPACKED: u64 = 256 << 20;
/// The kernel's own limit (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

const GZIP: &[u8] = &[0x1f, 0x8b];
const BZIP2: &[u8] = b"BZh";

/// No machine can be read from an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bytes are not an archive.
    #[error("failed to read the archive (tar, plain or compressed by gzip or bzip2)")]
    Read(#[source] io::Error),
    /// The archive has no sysfs.
    #[error("found no directory `sys` in the archive, not even one level down")]
    NoSysfs,
}

/// Files by path, without a leading slash.
#[derive(Debug, Default)]
pub(super) struct Archive {
    pub(super) entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
pub(super) enum Entry {
    Directory,
    File(Vec<u8>),
    Link(String),
}

impl Archive {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let unpacked: Box<dyn Read + '_> = match bytes {
            bytes if bytes.starts_with(GZIP) => Box::new(MultiGzDecoder::new(bytes)),
            bytes if bytes.starts_with(BZIP2) => Box::new(MultiBzDecoder::new(bytes)),
            bytes => Box::new(bytes),
        };
        let mut archive = Self::default();
        let mut tar = TarArchive::new(unpacked.take(LARGEST_UNPACKED));
        for entry in tar.entries().map_err(ArchiveError::Read)? {
            let mut entry = entry.map_err(ArchiveError::Read)?;
            let path = clean(&String::from_utf8_lossy(&entry.path_bytes()));
            let target =
                entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
            let found = match entry.header().entry_type() {
                EntryType::Directory => Entry::Directory,
                EntryType::Symlink => Entry::Link(target.unwrap_or_default()),
                EntryType::Regular => Entry::File(head(&mut entry).map_err(ArchiveError::Read)?),
                _ => continue,
            };
            archive.insert(path, found);
        }
        Ok(archive)
    }

    /// The directory that contains `sys`: the archive's root, or its only top-level directory.
    pub(super) fn root(&self) -> Result<String, ArchiveError> {
        let sys = self.entries.keys().find(|path| {
            *path == "sys" || path.ends_with("/sys") && path.matches('/').count() == 1
        });
        let sys = sys.ok_or(ArchiveError::NoSysfs)?;
        Ok(sys.strip_suffix("sys").unwrap_or_default().trim_end_matches('/').to_owned())
    }

    /// Inserts an entry with its parent directories, which archives may omit.
    pub(super) fn insert(&mut self, path: String, entry: Entry) {
        let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
        for at in slashes {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Directory);
        }
        match entry {
            Entry::Directory => drop(self.entries.entry(path).or_insert(Entry::Directory)),
            entry => drop(self.entries.insert(path, entry)),
        }
    }

    /// Inserts an entry at its path, with existing links resolved.
    pub(super) fn place(&mut self, path: &str, entry: Entry) {
        let path = clean(path);
        let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
        if let Ok(above) = self.resolve(above) {
            self.insert(clean(&format!("{above}/{name}")), entry);
        }
    }

    /// Writes a word into a binary file, which is extended as needed.
    pub(super) fn write_word(&mut self, path: &str, offset: u32, word: u32) {
        let (Ok(path), Ok(at)) = (self.resolve(path), usize::try_from(offset)) else { return };
        let mut bytes = match self.entries.remove(&path) {
            Some(Entry::File(bytes)) => bytes,
            _ => Vec::new(),
        };
        let end = at.saturating_add(size_of::<u32>());
        bytes.resize(bytes.len().max(end), 0);
        bytes[at..end].copy_from_slice(&word.to_le_bytes());
        self.insert(path, Entry::File(bytes));
    }

    pub(super) fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        let directory = self.resolve(directory)?;
        if !matches!(self.entries.get(&directory), Some(Entry::Directory)) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let prefix = format!("{directory}/");
        let below = self.entries.range(prefix.clone()..).map(|(path, _)| path);
        let below = below.map_while(|path| path.strip_prefix(&prefix));
        Ok(below.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    pub(super) fn file(&self, path: &str) -> io::Result<Vec<u8>> {
        match self.entries.get(&self.resolve(path)?) {
            Some(Entry::File(bytes)) => Ok(bytes.clone()),
            Some(_) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn target(&self, path: &str) -> io::Result<String> {
        let path = clean(path);
        let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let place = clean(&format!("{}/{name}", self.resolve(above)?));
        match self.entries.get(&place) {
            Some(Entry::Link(target)) => Ok(target.clone()),
            Some(_) => Err(io::ErrorKind::InvalidInput.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The path with all links resolved.
    fn resolve(&self, path: &str) -> io::Result<String> {
        let mut path = clean(path);
        for _ in 0..MOST_LINKS {
            let Some((link, target, rest)) = self.first_link(&path) else { return Ok(path) };
            path = clean(&match target.strip_prefix('/') {
                Some(absolute) => format!("{absolute}/{rest}"),
                None => format!("{link}/../{target}/{rest}"),
            });
        }
        Err(io::Error::other("too many links"))
    }

    /// The first link on a path, its target, and the rest of the path.
    fn first_link<'p>(&'p self, path: &'p str) -> Option<(&'p str, &'p str, &'p str)> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let mut heads = ends.map(|end| path.split_at(end));
        heads.find_map(|(head, rest)| match self.entries.get(head) {
            Some(Entry::Link(target)) => {
                Some((head, target.as_str(), rest.trim_start_matches('/')))
            }
            _ => None,
        })
    }
}

/// Reads only as much of a file as readers need.
fn head(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let longest = u64::try_from(LONGEST_DOCUMENT).map_err(io::Error::other)?;
    entry.take(longest + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Normalizes a path: resolves `.` and `..`, never above the root.
fn clean(path: &str) -> String {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, Option<&str>)]) -> Archive {
        let mut archive = Archive::default();
        for (path, target) in entries {
            let entry = match target {
                Some(target) => Entry::Link((*target).to_owned()),
                None => Entry::File(path.as_bytes().to_vec()),
            };
            archive.insert((*path).to_owned(), entry);
        }
        archive
    }

    #[test]
    fn links_are_followed_inside() {
        let archive = archive(&[
            ("m/sys/devices/a/file", None),
            ("m/sys/class/x/a", Some("../../devices/a")),
            ("m/sys/out", Some("../../../../../etc")),
            ("m/sys/loop", Some("loop")),
        ]);
        assert_eq!(archive.root().unwrap(), "m");
        assert_eq!(archive.file("m/sys/class/x/a/file").unwrap(), b"m/sys/devices/a/file");
        assert_eq!(archive.names("m/sys/class/x/a").unwrap(), ["file"]);
        assert_eq!(archive.target("m/sys/class/x/a").unwrap(), "../../devices/a");
        assert_eq!(archive.file("m/sys/out/passwd").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(archive.file("m/sys/loop/x").is_err());
        assert_eq!(archive.names("m/sys").unwrap(), ["class", "devices", "loop", "out"]);
    }
}
