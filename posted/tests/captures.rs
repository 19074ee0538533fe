//! Captures of real machines beside hwloc's listing of each.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads the captures of topology-graph")]

use std::fs;
use std::path::Path;

use posted::listing;
use topology_graph::{HostRoot, PathKind, PciAddress, PciFunction, Snapshot, Topology, read};

/// Every capture that has a listing in XML: its name, its machine and the XML.
fn captures() -> impl Iterator<Item = (String, Snapshot, String)> {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topology-graph/tests/captures");
    let files = fs::read_dir(captures).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "xml")).map(|listed| {
        let archive = listed.with_extension("tar.bz2");
        let host = HostRoot::in_archive(&archive, &fs::read(&archive).unwrap()).unwrap();
        let name = listed.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, read(&host).unwrap(), fs::read_to_string(listed).unwrap())
    })
}

/// A listing of hwloc that somebody posts is the same machine as its sysfs, as far as it shows it.
#[test]
fn listings_of_hwloc_are_machines() {
    let mut compared = 0;
    for (name, snapshot, xml) in captures() {
        let Ok(posted) = listing(&xml) else {
            assert_eq!(name, "nvidia-dgx-gb10", "only this listing has no PCI function");
            continue;
        };
        let nodes = |snapshot: &Snapshot| -> Vec<_> {
            let nodes = snapshot.numa_nodes.iter();
            nodes.map(|node| (node.node, node.cpus.clone(), node.distances.clone())).collect()
        };
        assert_eq!(nodes(&posted), nodes(&snapshot), "{name}");
        for function in &posted.pci {
            let known = snapshot.function(function.address).unwrap();
            let facts = |function: &PciFunction| {
                (function.root, function.bridges.clone(), function.class >> 8, function.vendor)
            };
            assert_eq!(facts(function), facts(known), "{name} {}", function.address);
            compared += 1;
        }
        let (there, _) = Topology::build(&snapshot, None);
        let (here, _) = Topology::build(&posted, None);
        // hwloc leaves out what it thinks unimportant, and its environment forced the localities of one
        // listing.
        let nics: Vec<PciAddress> = here.nics().iter().map(|nic| nic.address).collect();
        assert!(nics.len() >= 2, "{name}");
        for (a, b) in nics.iter().flat_map(|a| nics.iter().map(move |b| (*a, *b))) {
            let is_forced =
                name.ends_with("pcilocality") && !here.path(a, b).satisfies(PathKind::Phb);
            assert!(is_forced || here.path(a, b) == there.path(a, b), "{name} {a} {b}");
        }
    }
    assert_eq!(compared, 173);
}
