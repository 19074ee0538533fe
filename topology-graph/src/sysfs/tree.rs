//! A mounted tree of small files, with a record of what could not be read.
//!
//! Paths are relative and use `/`. A missing file is `None`, since most attributes are optional.
//! Any other failure is recorded once.

use std::io;
use std::str::FromStr;
use std::sync::Arc;

use super::ReadObserver;
use super::source::Source;
use super::vpd::Vpd;
use crate::{Anomaly, AnomalyKind, PciAddress, PcieRoot};

#[derive(Debug)]
pub(super) struct Tree {
    name: &'static str,
    source: Source,
    anomalies: Vec<Anomaly>,
    /// Everything that was read, for a capture; `None` without one.
    record: Option<Vec<Record>>,
    observer: Option<Arc<dyn ReadObserver>>,
}

/// Something that was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Record {
    File {
        path: String,
        text: String,
    },
    Link {
        path: String,
        target: String,
    },
    Word {
        path: String,
        offset: u32,
        word: u32,
    },
    /// The used part of vital product data.
    Vpd {
        path: String,
        vpd: Vpd,
    },
    /// A name in a listed directory.
    Name {
        path: String,
    },
}

impl Tree {
    pub(super) fn new(
        name: &'static str,
        source: Source,
        record: bool,
        observer: Option<Arc<dyn ReadObserver>>,
    ) -> Self {
        Self { name, source, anomalies: Vec::new(), record: record.then(Vec::new), observer }
    }

    /// The source of a file that is to be read now.
    fn source(&self, path: &str) -> io::Result<&Source> {
        if self.observer.as_ref().is_some_and(|observer| !observer.begins(&self.full(path))) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the device does not answer"));
        }
        Ok(&self.source)
    }

    /// The path below the host's root.
    fn full(&self, path: &str) -> String {
        format!("{}/{path}", self.name).trim_start_matches('/').to_owned()
    }

    /// Returns the name, the anomalies and the records.
    pub(super) fn finish(self) -> (&'static str, Vec<Anomaly>, Vec<Record>) {
        (self.name, self.anomalies, self.record.unwrap_or_default())
    }

    /// The sorted names in a directory; empty if it does not exist.
    pub(super) fn names(&mut self, directory: &str) -> Vec<String> {
        let names = self.source(directory).and_then(|source| source.names(directory));
        let mut names = names.unwrap_or_else(|error| {
            self.note_error(directory, &error);
            Vec::new()
        });
        names.sort_unstable();
        if let Some(record) = &mut self.record {
            let paths = names.iter().map(|name| format!("{directory}/{name}"));
            record.extend(paths.map(|path| Record::Name { path }));
        }
        names
    }

    /// A file's text, trimmed.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        match self.source(path).and_then(|source| source.page(path)) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                self.record(|| Record::File { path: path.to_owned(), text: text.clone() });
                Some(text)
            }
            Err(error) => {
                self.note_error(path, &error);
                None
            }
        }
    }

    /// The text of a longer file.
    pub(super) fn document(&mut self, path: &str) -> Option<String> {
        let bytes = self.source(path).and_then(|source| source.document(path));
        let bytes = bytes.map_err(|error| self.note_error(path, &error)).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.record(|| Record::File { path: path.to_owned(), text: text.clone() });
        Some(text)
    }

    /// A little-endian word of a binary file; `None` beyond its end.
    pub(super) fn word(&mut self, path: &str, offset: u32) -> Option<u32> {
        let word = self.source(path).and_then(|source| source.word(path, offset));
        let word = word.map_err(|error| self.note_error(path, &error)).ok()??;
        self.record(|| Record::Word { path: path.to_owned(), offset, word });
        Some(word)
    }

    /// Parses the first page of vital product data; `None` if they cannot be read or hold nothing
    /// of use.
    pub(super) fn vpd(&mut self, path: &str) -> Option<Vpd> {
        let page = self.source(path).and_then(|source| source.page(path));
        let page = page.map_err(|error| self.note_error(path, &error)).ok()?;
        let vpd = Some(Vpd::parse(&page)).filter(|vpd| *vpd != Vpd::default())?;
        self.record(|| Record::Vpd { path: path.to_owned(), vpd: vpd.clone() });
        Some(vpd)
    }

    /// A file's text, parsed by the caller; a rejected text is recorded.
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

    /// A file's text, parsed as `T`.
    pub(super) fn value<T: FromStr>(&mut self, path: &str) -> Option<T> {
        self.parsed(path, |text| text.parse().ok())
    }

    /// A hexadecimal ID, `0x15b3`.
    pub(super) fn hex(&mut self, path: &str) -> Option<u32> {
        self.parsed(path, |text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok())
    }

    /// A link's target, resolved against the link's directory by name: links in sysfs do not lead
    /// through other links.
    pub(super) fn link(&mut self, path: &str) -> Option<String> {
        match self.source(path).and_then(|source| source.target(path)) {
            Ok(target) => {
                let resolved = resolve(path, &target);
                self.record(|| Record::Link { path: path.to_owned(), target });
                Some(resolved)
            }
            Err(error) => {
                self.note_error(path, &error);
                None
            }
        }
    }

    /// The last component of a link's target.
    pub(super) fn link_name(&mut self, path: &str) -> Option<String> {
        self.link(path)?.rsplit('/').next().map(str::to_owned)
    }

    fn record(&mut self, made: impl FnOnce() -> Record) {
        if let Some(record) = &mut self.record {
            record.push(made());
        }
    }

    pub(super) fn note(&mut self, kind: AnomalyKind, path: &str, detail: String) {
        self.anomalies.push(Anomaly::new(kind, self.full(path), detail));
    }

    /// Records an error. A missing file is normal; so is one that the kernel refuses for this
    /// device, or a directory in place of a link.
    fn note_error(&mut self, path: &str, error: &io::Error) {
        use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, Unsupported};
        if !matches!(error.kind(), NotFound | NotADirectory | InvalidInput | Unsupported) {
            self.note(AnomalyKind::Unreadable, path, error.to_string());
        }
    }
}

/// Resolves a target: `dir/link` with target `../x` is `x`. Leading `..` beyond the root are
/// dropped.
fn resolve(link: &str, target: &str) -> String {
    let mut names: Vec<&str> = link.split('/').collect();
    names.pop();
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

/// The root bus and the functions in a device's path, starting at the root.
pub(super) fn pci_chain(path: &str) -> (Option<PcieRoot>, Vec<PciAddress>) {
    let mut root = None;
    let mut functions = Vec::new();
    for name in path.split('/') {
        if let Ok(found) = name.parse::<PcieRoot>() {
            // A bridge that creates a new domain (VMD) starts a new tree.
            root = Some(found);
            functions.clear();
        } else if let Ok(address) = name.parse::<PciAddress>() {
            functions.push(address);
        }
    }
    (root, functions)
}

/// The nearest PCI function above a device, given the target of its class link.
pub(super) fn pci_parent(path: &str) -> Option<PciAddress> {
    pci_chain(path).1.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_by_name() {
        let resolved = |link: &str, target: &str| resolve(link, target);
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
