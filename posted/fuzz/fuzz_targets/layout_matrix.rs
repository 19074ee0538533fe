#![no_main]

#[path = "../layouts.rs"]
mod layouts;

use std::sync::LazyLock;

use topology_graph::Topology;

static MACHINE: LazyLock<Topology> = LazyLock::new(|| {
    let snapshot = posted::listing(layouts::TREE).expect("the listing is whole");
    Topology::build(&snapshot, None).0
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = layouts::matrix_holds(&MACHINE, bytes);
});
