//! Any text in any file of a machine: the first two bytes name the file.
#![no_main]

use std::io::{self, Read};
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use libfuzzer_sys::fuzz_target;
use tar::{Archive, Builder, EntryType, Header};
use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, Identities, Topology, capture, read};

/// Files and links of a machine that has everything: path, target, text.
static MACHINE: LazyLock<Vec<(String, Option<String>, Vec<u8>)>> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("topology-graph-fuzz-{}", std::process::id()));
    plant(machine("gb300-data-direct").expect("the crate carries it"), &root).expect("it is sound");
    let mut bytes = Vec::new();
    capture(&HostRoot::at(&root), Identities::Kept, &mut bytes).expect("memory takes a capture");
    std::fs::remove_dir_all(&root).expect("it was made here");
    let mut archive = Archive::new(GzDecoder::new(bytes.as_slice()));
    let entries = archive.entries().expect("the machine is an archive");
    let entry = |entry: io::Result<tar::Entry<'_, GzDecoder<&[u8]>>>| {
        let mut entry = entry.ok()?;
        let path = entry.path().ok()?.to_str()?.to_owned();
        let target = entry.link_name().ok()?.map(|target| target.to_string_lossy().into_owned());
        let mut text = Vec::new();
        entry.read_to_end(&mut text).ok()?;
        (entry.header().entry_type() != EntryType::Directory).then_some((path, target, text))
    };
    entries.filter_map(entry).collect()
});

fn with(changed: usize, text: &[u8]) -> io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (index, (path, target, old)) in MACHINE.iter().enumerate() {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        match target {
            Some(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, path, target)?;
            }
            None => {
                let text = if index == changed { text } else { old };
                header.set_size(text.len() as u64);
                tar.append_data(&mut header, path, text)?;
            }
        }
    }
    tar.into_inner()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((index, text)) = bytes.split_first_chunk::<2>() else { return };
    let index = usize::from(u16::from_le_bytes(*index)) % MACHINE.len();
    let bytes = with(index, text).expect("memory takes an archive");
    let host = HostRoot::in_archive("fuzz", &bytes).expect("the machine has a sysfs");
    let snapshot = read(&host).expect("the machine has a sysfs");
    let (topology, _) = Topology::build(&snapshot, None);
    Topology::from_spec(&topology.to_spec()).expect("a graph has an object");
});
