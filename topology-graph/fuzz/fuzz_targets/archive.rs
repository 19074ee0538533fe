//! Any bytes are a machine or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use topology_graph::{Format, HostRoot, Topology, read};

fuzz_target!(|bytes: &[u8]| {
    let Ok(host) = HostRoot::in_archive("fuzz", bytes) else { return };
    let Ok(snapshot) = read(&host) else { return };
    let (topology, _) = Topology::build(&snapshot, None);
    for format in Format::ALL {
        drop(format.render(&topology));
    }
});
