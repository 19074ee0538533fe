//! Any text is an NCCL topology or an error; what is one is written back equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use topology_graph::{NcclXml, Overlay, Topology, nccl_xml};

fuzz_target!(|text: &str| {
    let Ok(xml) = NcclXml::parse(text) else { return };
    assert_eq!(NcclXml::parse(&xml.write()).expect("what was written is XML"), xml);
    let (topology, _) = Topology::from_overlay(&Overlay::from_nccl_xml(&xml));
    NcclXml::parse(&nccl_xml(&topology)).expect("a graph has an NCCL topology");
});
