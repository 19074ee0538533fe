//! Checks of parsers of untrusted bytes. The fuzz targets run them on random bytes, the test
//! `corpus` on stored ones.

use std::io::Read as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use tar::{Archive, Builder, Header};
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
    let changed = MACHINE.with(usize::from(u16::from_le_bytes(*index)), text);
    let host = HostRoot::in_archive("fuzz", &changed).expect("the machine has a sysfs");
    let snapshot = read(&host).expect("the machine has a sysfs");
    let (topology, _) = Topology::build(&snapshot, None);
    Topology::from_spec(&topology.to_spec()).expect("a graph has an object");
}

/// A GPU and an adapter with every kind of file.
static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder can be made");
    let text = machine("gb300-data-direct").expect("the crate carries it");
    // A whole machine takes ten times as long, and has the same kinds of files.
    let (first, _) = text.split_once("# GPU1").expect("it has a second GPU");
    plant(first, root.path()).expect("it is sound");
    let mut bytes = Vec::new();
    capture(&HostRoot::at(root.path()), Identities::Kept, &mut bytes).expect("it has a sysfs");
    Machine::new(&bytes)
});

/// The tar file of a machine.
struct Machine {
    bytes: Vec<u8>,
    files: Vec<File>,
}

/// A file of a machine, and where its header and text are in the tar file.
struct File {
    path: PathBuf,
    bytes: Range<usize>,
}

impl File {
    fn of(entry: &tar::Entry<'_, &[u8]>) -> Self {
        let [header, text, size] =
            [entry.raw_header_position(), entry.raw_file_position(), entry.size()]
                .map(|it| usize::try_from(it).expect("it is in memory"));
        let path = entry.path().expect("it has a path").into_owned();
        Self { path, bytes: header..text + size.next_multiple_of(BLOCK) }
    }
}

impl Machine {
    fn new(capture: &[u8]) -> Self {
        let mut bytes = Vec::new();
        GzDecoder::new(capture).read_to_end(&mut bytes).expect("a capture is compressed");
        let mut archive = Archive::new(bytes.as_slice());
        let entries = archive.entries().expect("a capture is an archive");
        let entries = entries.map(|entry| entry.expect("it is whole"));
        let files = entries.filter(|entry| entry.header().entry_type().is_file());
        let files = files.map(|entry| File::of(&entry)).collect();
        Self { bytes, files }
    }

    /// The machine with another text in one of its files.
    fn with(&self, index: usize, text: &[u8]) -> Vec<u8> {
        let File { path, bytes } = &self.files[index % self.files.len()];
        let mut tar = Builder::new(self.bytes[..bytes.start].to_vec());
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, path, text).expect("memory takes a file");
        tar.get_mut().extend_from_slice(&self.bytes[bytes.end..]);
        tar.into_inner().expect("memory takes an archive")
    }
}

/// Bytes of a block of a tar file.
const BLOCK: usize = 512;
