#![no_main]

#[path = "../layouts.rs"]
mod layouts;

use std::sync::LazyLock;

use layouts::WholeMatrix;
use topology_graph::Topology;

static MATRIX: LazyLock<WholeMatrix> = LazyLock::new(|| {
    let snapshot = posted::listing(layouts::TREE).expect("the listing is whole");
    WholeMatrix::of(Topology::build(&snapshot, None).0)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = MATRIX.holds(bytes);
});
