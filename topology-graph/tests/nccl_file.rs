//! The topology file on a machine for NCCL: found where NCCL finds it, and merged with the kernel's
//! facts.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test puts files on its machine")]

use std::fs;

use tempfile::TempDir;
use topology_graph::fixture::{machine, plant};
use topology_graph::{
    Anomaly, HostRoot, Identities, Level, Overlay, Topology, capture, matrix, read,
};

const FILE: &str = include_str!("../overlays/azure-ndv5-topo.xml");
const OF_TOPOLOGYD: &str = "run/nvidia-topologyd/virtualTopology.xml";

/// An ND H100 v5 with these additional files.
fn machine_with(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    plant(machine("azure-ndh100v5").unwrap(), root.path()).unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn built(host: &HostRoot, overlays: Option<&Overlay>) -> (Topology, Vec<Anomaly>) {
    Topology::build(&read(host).unwrap(), overlays)
}

fn switches(topology: &Topology) -> usize {
    topology.cells(Level::Switch).len()
}

#[test]
fn the_file_is_found_where_nccl_finds_it() {
    let named = "NCCL_DEBUG=WARN\nNCCL_TOPO_FILE=/opt/topo.xml\n";
    for (files, flag) in [
        (vec![(OF_TOPOLOGYD, FILE)], None),
        (vec![("etc/nccl.conf", named), ("opt/topo.xml", FILE)], None),
        (vec![(OF_TOPOLOGYD, "<system/>"), ("opt/topo.xml", FILE)], Some("/opt/topo.xml")),
    ] {
        let root = machine_with(&files);
        let mut host = HostRoot::at(root.path());
        if let Some(flag) = flag {
            host = host.with_nccl_file(flag);
        }
        let (topology, anomalies) = built(&host, None);
        assert_eq!(anomalies, [], "{files:?}");
        assert_eq!(switches(&topology), 8, "{files:?}");
        // The file has no NVLinks; they come from the GPU model.
        let gpus = topology.gpus();
        assert_eq!(topology.path(gpus[0].address, gpus[1].address).to_string(), "NV18");
    }
}

#[test]
fn the_file_agrees_with_the_overlay_of_the_vm_size() {
    let overlay = Overlay::built_in("Standard_ND96isr_H100_v5").unwrap();
    let root = machine_with(&[(OF_TOPOLOGYD, FILE)]);
    let (topology, anomalies) = built(&HostRoot::at(root.path()), Some(&overlay));
    assert_eq!(anomalies, []);
    assert_eq!(switches(&topology), 8);
    assert!(matrix(&topology).contains("NV18"));
}

#[test]
fn conflicts_with_the_file_are_anomalies() {
    let overlay = Overlay::built_in("Standard_ND96isr_H100_v5").unwrap();
    // Two devices move to other switches, and one to another NUMA node.
    let changed = FILE.replace("0101:00:00.0", "0000:00:00.0");
    let changed = changed.replace("0102:00:00.0", "0101:00:00.0");
    let changed = changed.replace("0000:00:00.0", "0102:00:00.0");
    assert_ne!(changed, FILE);
    let root = machine_with(&[(OF_TOPOLOGYD, &changed)]);
    let (_, anomalies) = built(&HostRoot::at(root.path()), Some(&overlay));
    let lines: Vec<_> = anomalies.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn an_invalid_file_is_an_anomaly() {
    let mut text = String::new();
    for files in [
        vec![(OF_TOPOLOGYD, "<topology/>")],
        vec![(OF_TOPOLOGYD, "<system")],
        vec![("etc/nccl.conf", "NCCL_TOPO_FILE=/opt/none.xml")],
    ] {
        let root = machine_with(&files);
        let (topology, anomalies) = built(&HostRoot::at(root.path()), None);
        assert_eq!(topology.gpus().len(), 8);
        text.extend(anomalies.iter().map(|anomaly| anomaly.to_string() + "\n"));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_capture_contains_the_file() {
    let file = FILE.replace("<pci busid=\"0101", "<pci guid=\"0xabc\" busid=\"0101");
    let root = machine_with(&[
        ("etc/nccl.conf", "SECRET=1\nNCCL_TOPO_FILE=/opt/topo.xml\n"),
        ("opt/topo.xml", &file),
    ]);
    let host = HostRoot::at(root.path());
    let before = built(&host, None).0;
    for (identities, kept) in [(Identities::Kept, true), (Identities::Masked, false)] {
        let mut bytes = Vec::new();
        capture(&host, identities, &mut bytes).unwrap();
        let after = HostRoot::in_archive("capture", &bytes).unwrap();
        assert_eq!(built(&after, None).0.shape(), before.shape());
        let file = read(&after).unwrap().nccl_file.unwrap();
        assert_eq!(file.path, "opt/topo.xml");
        assert_eq!(file.text.contains("0xabc"), kept);
    }
}
