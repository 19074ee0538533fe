//! Checks of parsers of untrusted bytes. The fuzz targets run them on random bytes, the test
//! `corpus` on stored ones.

use std::io::{self, Read};
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use tar::{Archive, Builder, EntryType, Header};
use topology_graph::fixture::{machine, plant};
use topology_graph::{
    Format, HostRoot, Identities, NcclXml, NodeTopologySpec, Overlay, Topology, capture, nccl_xml,
    read,
};

/// Any bytes are either a machine or an error.
pub(crate) fn archive(bytes: &[u8]) {
    let Ok(host) = HostRoot::in_archive("fuzz", bytes) else { return };
    let Ok(snapshot) = read(&host) else { return };
    let (topology, _) = Topology::build(&snapshot, None);
    for format in Format::ALL {
        drop(format.render(&topology));
    }
}

/// Any text is either an NCCL topology or an error; a topology is written back unchanged.
pub(crate) fn nccl(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(xml) = NcclXml::parse(text) else { return };
    assert_eq!(NcclXml::parse(&xml.write()).expect("what was written is XML"), xml);
    let (topology, _) = Topology::from_overlay(&Overlay::from_nccl_xml(&xml));
    NcclXml::parse(&nccl_xml(&topology)).expect("a graph has an NCCL topology");
}

/// Any object is either a graph or an error; a graph is written back unchanged.
pub(crate) fn node_topology(bytes: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<NodeTopologySpec>(bytes) else { return };
    let Ok(topology) = Topology::from_spec(&spec) else { return };
    let back = Topology::from_spec(&topology.to_spec()).expect("a graph has an object");
    assert_eq!(back.pairs(), topology.pairs());
    assert_eq!(back.to_spec(), topology.to_spec());
}

/// Any text in any file of a machine is read without a panic; the first two bytes select the file.
pub(crate) fn sysfs(bytes: &[u8]) {
    let Some((index, text)) = bytes.split_first_chunk::<2>() else { return };
    let index = usize::from(u16::from_le_bytes(*index)) % MACHINE.len();
    let bytes = with(index, text).expect("memory takes an archive");
    let host = HostRoot::in_archive("fuzz", &bytes).expect("the machine has a sysfs");
    let snapshot = read(&host).expect("the machine has a sysfs");
    let (topology, _) = Topology::build(&snapshot, None);
    Topology::from_spec(&topology.to_spec()).expect("a graph has an object");
}

/// A file or link of a machine: its path, a link's target, a file's text.
type Entry = (String, Option<String>, Vec<u8>);

/// A machine with every kind of file.
static MACHINE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder can be made");
    let text = machine("gb300-data-direct").expect("the crate carries it");
    plant(text, root.path()).expect("it is sound");
    let mut bytes = Vec::new();
    capture(&HostRoot::at(root.path()), Identities::Kept, &mut bytes).expect("it has a sysfs");
    let mut archive = Archive::new(GzDecoder::new(bytes.as_slice()));
    archive.entries().expect("a capture is an archive").filter_map(entry).collect()
});

fn entry(entry: io::Result<tar::Entry<'_, GzDecoder<&[u8]>>>) -> Option<Entry> {
    let mut entry = entry.ok()?;
    let path = entry.path().ok()?.to_str()?.to_owned();
    let target = entry.link_name().ok()?.map(|target| target.to_string_lossy().into_owned());
    let mut text = Vec::new();
    entry.read_to_end(&mut text).ok()?;
    (entry.header().entry_type() != EntryType::Directory).then_some((path, target, text))
}

/// The machine with another text in one file.
fn with(changed: usize, text: &[u8]) -> io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (index, (path, target, old)) in MACHINE.iter().enumerate() {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        if let Some(target) = target {
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, path, target)?;
        } else {
            let text = if index == changed { text } else { old };
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, path, text)?;
        }
    }
    tar.into_inner()
}
