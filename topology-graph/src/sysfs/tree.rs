//! A mounted tree of small files, and what in it could not be read.
//!
//! Paths are relative and written with `/`. A missing file is `None`: most
//! attributes are optional. Anything else that fails is noted once.

#![expect(clippy::disallowed_methods, reason = "the reader is where files are read")]

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{Anomaly, AnomalyKind, PciAddress, PcieRoot};

/// Attributes of sysfs are one page; what is longer is no attribute.
const LONGEST_ATTRIBUTE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Tree {
    name: &'static str,
    root: PathBuf,
    anomalies: Vec<Anomaly>,
}

impl Tree {
    pub(super) fn at(name: &'static str, root: PathBuf) -> Self {
        Self { name, root, anomalies: Vec::new() }
    }

    pub(super) fn into_anomalies(self) -> Vec<Anomaly> {
        self.anomalies
    }

    /// The directory, or why there is none.
    pub(super) fn require(&self, directory: &str) -> io::Result<()> {
        fs::read_dir(self.root.join(directory)).map(drop)
    }

    /// Names in a directory, sorted; none where there is no such directory.
    pub(super) fn names(&mut self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(directory)).and_then(|entries| {
            entries.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()
        });
        let mut names: Vec<String> = match entries {
            Ok(names) => {
                names.into_iter().map(OsString::into_string).filter_map(Result::ok).collect()
            }
            Err(error) => {
                self.note_error(directory, &error);
                Vec::new()
            }
        };
        names.sort_unstable();
        names
    }

    /// A file's text without the white space around it.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let read = fs::File::open(self.root.join(path))
            .and_then(|file| file.take(LONGEST_ATTRIBUTE).read_to_end(&mut bytes));
        match read {
            Ok(_) => Some(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) => {
                self.note_error(path, &error);
                None
            }
        }
    }

    /// A file's text, parsed by the caller; refused text is noted.
    pub(super) fn parsed<T>(
        &mut self,
        path: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(path)?;
        let value = parse(&text);
        if value.is_none() {
            let found = text.chars().take(64).collect::<String>();
            self.note(AnomalyKind::Malformed, path, format!("unexpected value `{found}`"));
        }
        value
    }

    /// A file's text as its type reads it.
    pub(super) fn value<T: FromStr>(&mut self, path: &str) -> Option<T> {
        self.parsed(path, |text| text.parse().ok())
    }

    /// A hexadecimal id, `0x15b3`.
    pub(super) fn hex(&mut self, path: &str) -> Option<u32> {
        self.parsed(path, |text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok())
    }

    /// A link's target, resolved against the link's own directory by names alone:
    /// links of sysfs lead through no other link.
    pub(super) fn link(&mut self, path: &str) -> Option<String> {
        match fs::read_link(self.root.join(path)) {
            Ok(target) => Some(resolve(path, &target)),
            // Not a link: the kernel before 2.6.25 and some captures have directories.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => None,
            Err(error) => {
                self.note_error(path, &error);
                None
            }
        }
    }

    /// The last name of a link's target.
    pub(super) fn link_name(&mut self, path: &str) -> Option<String> {
        self.link(path)?.rsplit('/').next().map(str::to_owned)
    }

    pub(super) fn note(&mut self, kind: AnomalyKind, path: &str, detail: String) {
        self.anomalies.push(Anomaly::new(kind, format!("{}/{path}", self.name), detail));
    }

    /// Absent is normal, and so is what the kernel refuses for this device.
    fn note_error(&mut self, path: &str, error: &io::Error) {
        use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, Unsupported};
        if !matches!(error.kind(), NotFound | NotADirectory | InvalidInput | Unsupported) {
            self.note(AnomalyKind::Unreadable, path, error.to_string());
        }
    }
}

/// `dir/link` with target `../x` is `x`; leading parents beyond the root vanish.
fn resolve(link: &str, target: &Path) -> String {
    let mut names: Vec<&str> = link.split('/').collect();
    names.pop();
    let target = target.to_string_lossy();
    if target.starts_with('/') {
        names.clear();
    }
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

/// The root bus and the functions named on a device's path, from the root.
pub(super) fn pci_chain(path: &str) -> (Option<PcieRoot>, Vec<PciAddress>) {
    let mut root = None;
    let mut functions = Vec::new();
    for name in path.split('/') {
        if let Ok(found) = name.parse::<PcieRoot>() {
            // A bridge that makes a new domain (VMD) starts a new tree.
            root = Some(found);
            functions.clear();
        } else if let Ok(address) = name.parse::<PciAddress>() {
            functions.push(address);
        }
    }
    (root, functions)
}

/// The function nearest above a device that is named by a link of its class.
pub(super) fn pci_parent(path: &str) -> Option<PciAddress> {
    pci_chain(path).1.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_by_name() {
        let resolved = |link: &str, target: &str| resolve(link, Path::new(target));
        assert_eq!(resolved("bus/pci/devices/x", "../../../devices/a/x"), "devices/a/x");
        assert_eq!(resolved("a/b", "../../../../c"), "c");
        assert_eq!(resolved("a/b", "/c/./d"), "c/d");
    }

    #[test]
    fn chains_begin_at_the_last_root() {
        let vmbus =
            "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/6f8a/pci0101:00/0101:00:00.0";
        let (root, functions) = pci_chain(vmbus);
        assert_eq!(root.unwrap().to_string(), "pci0101:00");
        assert_eq!(functions.len(), 1);
        let vmd = "devices/pci0000:e0/0000:e0:05.5/pci10000:e0/10000:e0:00.0/10000:e1:00.0/net/x";
        let (root, functions) = pci_chain(vmd);
        assert_eq!(root.unwrap().to_string(), "pci10000:e0");
        assert_eq!(
            functions.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10000:e0:00.0", "10000:e1:00.0"]
        );
        assert_eq!(pci_parent("devices/virtual/net/lo"), None);
    }
}
