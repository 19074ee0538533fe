//! Captures everything that the reader reads of a machine as an archive, so that any machine can
//! become a fixture.
//!
//! It contains nothing else. Of a GPU's file only the model and the UUID are kept. GUIDs and UUIDs
//! are masked on request; equal ones stay equal.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::archive::{Archive, Entry};
use super::kfd;
use super::nccl::{CONFIGURATION, KEY};
use super::numa::MEMORY;
use super::tree::Record;
use super::vpd::Vpd;
use super::{HostRoot, ReadError, read_all};
use crate::NcclXml;

/// A capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The machine could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The archive could not be written.
    #[error("failed to write the capture")]
    Write(#[source] io::Error),
}

/// Whether a capture identifies its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identities {
    /// Keeps GUIDs and UUIDs.
    Kept,
    /// Replaces them with numbers.
    Masked,
}

/// Captures a machine as a tar archive compressed with gzip. The same machine gives the same bytes.
pub fn capture(
    host: &HostRoot,
    identities: Identities,
    out: impl Write,
) -> Result<(), CaptureError> {
    let (_, records) = read_all(host, true)?;
    let mut mask = Mask { identities, known: BTreeMap::new() };
    let archive = archive(records, &mut mask);
    write(&archive, out).map_err(CaptureError::Write)
}

/// Adds links first, so that files read through them go to their real place. Names that were listed
/// but not read come last.
fn archive(mut records: Vec<(&'static str, Record)>, mask: &mut Mask) -> Archive {
    let mut archive = Archive::default();
    archive.insert("sys/devices".to_owned(), Entry::Directory);
    records.sort_by_key(|(_, record)| match record {
        Record::Link { .. } => 0,
        Record::File { .. } | Record::Word { .. } | Record::Vpd { .. } => 1,
        Record::Name { .. } => 2,
    });
    for (tree, record) in records {
        match record {
            Record::Link { path, target } => {
                archive.place(&format!("{tree}/{path}"), Entry::Link(target));
            }
            Record::Word { path, offset, word } => {
                archive.write_word(&format!("{tree}/{path}"), offset, word);
            }
            Record::Vpd { path, vpd } => {
                let v3 = vpd.v3.map(|value| mask.vpd(&value));
                let bytes = Vpd { v3, ..vpd }.to_bytes();
                archive.place(&format!("{tree}/{path}"), Entry::File(bytes));
            }
            Record::Name { path } => archive.place(&format!("{tree}/{path}"), Entry::Directory),
            Record::File { path, text } => {
                let text = mask.apply(&path, &text);
                archive.place(&format!("{tree}/{path}"), Entry::File(text.into_bytes()));
            }
        }
    }
    archive
}

fn write(archive: &Archive, out: impl Write) -> io::Result<()> {
    let mut tar = Builder::new(GzEncoder::new(out, Compression::best()));
    for (path, entry) in &archive.entries {
        let mut header = Header::new_gnu();
        header.set_mtime(0);
        header.set_mode(if matches!(entry, Entry::File(_)) { 0o644 } else { 0o755 });
        match entry {
            Entry::Directory => {
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                tar.append_data(&mut header, format!("{path}/"), io::empty())?;
            }
            Entry::File(bytes) => {
                header.set_size(u64::try_from(bytes.len()).map_err(io::Error::other)?);
                tar.append_data(&mut header, path, bytes.as_slice())?;
            }
            Entry::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, path, target)?;
            }
        }
    }
    tar.into_inner()?.finish()?.flush()
}

/// Replacements of identities, equal for equal ones.
struct Mask {
    identities: Identities,
    known: BTreeMap<String, usize>,
}

impl Mask {
    fn apply(&mut self, path: &str, text: &str) -> String {
        match path.rsplit('/').next() {
            _ if path == CONFIGURATION => lines(text, |line| line.trim_start().starts_with(KEY)),
            Some(name) if name.rsplit('.').next() == Some("xml") => self.nccl_file(text),
            Some("information") => {
                let lines = text.lines().filter_map(|line| self.information(line));
                lines.map(|line| line + "\n").collect()
            }
            Some("properties") => self.properties(text),
            // The other lines differ at every read.
            Some("meminfo") => lines(text, |line| line.contains(MEMORY)),
            Some("node_guid" | "sys_image_guid") => self.guid(text) + "\n",
            _ => format!("{text}\n"),
        }
    }

    /// Masks the file if requested. An invalid file cannot be masked and is emptied instead.
    fn nccl_file(&self, text: &str) -> String {
        match (self.identities, NcclXml::parse(text)) {
            (Identities::Kept, _) => text.to_owned(),
            (Identities::Masked, Ok(xml)) => xml.without_identities().write(),
            (Identities::Masked, Err(_)) => String::new(),
        }
    }

    /// The lines of the NVIDIA driver's file that the reader uses.
    fn information(&mut self, line: &str) -> Option<String> {
        let (key, value) = line.split_once(':')?;
        match key {
            "Model" => Some(line.to_owned()),
            "GPU UUID" => Some(format!("{key}: \t {}", self.uuid(value.trim()))),
            _ => None,
        }
    }

    /// The lines of a KFD node that the reader uses.
    fn properties(&mut self, text: &str) -> String {
        let kept = kfd::READ.into_iter().filter_map(|key| Some((key, kfd::property(text, key)?)));
        let mut lines: Vec<String> = kept.map(|(key, value)| format!("{key} {value}\n")).collect();
        if let Some(id) = kfd::property(text, "unique_id") {
            let id = match self.identities {
                Identities::Kept => id,
                Identities::Masked if id == 0 => id,
                Identities::Masked => u64::try_from(self.number(&id.to_string())).unwrap_or(0),
            };
            lines.push(format!("unique_id {id}\n"));
        }
        lines.concat()
    }

    fn guid(&mut self, guid: &str) -> String {
        // Zeros mean that the GUID is not set.
        let unset = guid.bytes().all(|byte| matches!(byte, b'0' | b':'));
        if self.identities == Identities::Kept || unset {
            return guid.to_owned();
        }
        format!("0000:0000:0000:{:04x}", self.number(guid))
    }

    fn uuid(&mut self, uuid: &str) -> String {
        match self.identities {
            Identities::Kept => uuid.to_owned(),
            Identities::Masked => {
                format!("GPU-00000000-0000-0000-0000-{:012x}", self.number(uuid))
            }
        }
    }

    fn vpd(&mut self, value: &str) -> String {
        match self.identities {
            Identities::Kept => value.to_owned(),
            Identities::Masked => format!("{:012x}", self.number(value)),
        }
    }

    fn number(&mut self, identity: &str) -> usize {
        let next = self.known.len() + 1;
        *self.known.entry(identity.to_owned()).or_insert(next)
    }
}

/// The lines that pass the filter.
fn lines(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|line| wanted(line)).map(|line| line.to_owned() + "\n").collect()
}
