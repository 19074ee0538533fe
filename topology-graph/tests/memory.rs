//! Limits the memory for reading a large machine. It is counted, so the result is the same on every
//! machine.

#[path = "../benches/graph/machine.rs"]
mod machines;

use peak_alloc::PeakAlloc;
use topology_graph::fixture::plant;
use topology_graph::{HostRoot, Topology, read};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The maximum for one read by the node driver, in bytes.
const ALLOWED: usize = 10_000_000;

#[test]
fn six_hundred_functions_take_less_than_ten_megabytes() {
    let root = tempfile::tempdir().unwrap();
    plant(&machines::machine_text(16, 504), root.path()).unwrap();
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let snapshot = read(&HostRoot::at(root.path())).unwrap();
    let (topology, _) = Topology::build(&snapshot, None);
    let taken = MEMORY.peak_usage() - before;
    assert_eq!((snapshot.pci.len(), topology.gpus().len()), (600, 16));
    println!("{taken} bytes at most");
    assert!(taken < ALLOWED, "{taken} bytes");
}
