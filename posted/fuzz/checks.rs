//! Checks of parsers of untrusted bytes. The fuzz targets run them on random bytes, the test
//! `corpus` on stored ones.

use std::sync::LazyLock;

use posted::PostedMatrix;
use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, Topology, read};

/// Any text is either a listing of a machine or an error.
pub(crate) fn listing(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(snapshot) = posted::listing(text) else { return };
    let (topology, _) = Topology::build(&snapshot, None);
    Topology::from_spec(&topology.to_spec()).expect("a graph has an object");
}

/// Any text is either a matrix or an error.
pub(crate) fn matrix(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(matrix) = PostedMatrix::parse(text) else { return };
    drop(matrix.compare(&GB300).to_string());
}

static GB300: LazyLock<Topology> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder can be made");
    plant(machine("azure-gb300").expect("the crate carries it"), root.path()).expect("it is sound");
    let snapshot = read(&HostRoot::at(root.path())).expect("it has a sysfs");
    Topology::build(&snapshot, None).0
});
