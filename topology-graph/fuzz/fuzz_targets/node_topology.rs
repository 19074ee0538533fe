//! Any object is a graph or an error; what is one is written back the same graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use topology_graph::{NodeTopologySpec, Topology};

fuzz_target!(|bytes: &[u8]| {
    let Ok(spec) = serde_json::from_slice::<NodeTopologySpec>(bytes) else { return };
    let Ok(topology) = Topology::from_spec(&spec) else { return };
    let back = Topology::from_spec(&topology.to_spec()).expect("a graph has an object");
    assert_eq!(back.pairs(), topology.pairs());
});
