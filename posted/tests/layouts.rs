//! Listings and matrices in the layouts that people post: the same machine in any layout gives the same
//! graph or an error, never another graph.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads the listings beside it")]

use std::fs;
use std::path::{Path, PathBuf};

use posted::{Comparison, PostedMatrix, listing};
use topology_graph::{HostRoot, PathKind, Topology, read};

#[path = "../fuzz/layouts.rs"]
mod layouts;

fn text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/posted");
    fs::read_to_string(folder.join(name)).unwrap()
}

fn graph(text: &str) -> Result<Topology, String> {
    let snapshot = listing(text).map_err(|error| error.to_string())?;
    Ok(Topology::build(&snapshot, None).0)
}

/// A machine of topology-graph.
fn machine(name: &str) -> Topology {
    let trees = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../topology-graph/tests/trees");
    let archive = trees.join(format!("{name}.tar.gz"));
    let host = HostRoot::in_archive(&archive, &fs::read(&archive).unwrap()).unwrap();
    Topology::build(&read(&host).unwrap(), None).0
}

fn compared(matrix: &str, name: &str) -> Comparison {
    PostedMatrix::parse(&text(matrix)).unwrap().compare(&machine(name))
}

#[test]
fn one_tree_in_several_layouts() {
    let tree = graph(&text("tree.txt")).unwrap();
    assert_eq!((tree.gpus().len(), tree.nics().len()), (4, 3));
    for (name, expected) in [
        ("dash.txt", None),
        ("w80.txt", None),
        ("sp.txt", Some("line 2: the columns of `| \\-1e.7 Intel Corporation Device 3459`")),
        ("t.txt", Some("found a tree without names")),
        ("lstopo.txt", Some("found the console text of lstopo")),
    ] {
        match (graph(&text(name)), expected) {
            (Ok(graph), None) => assert_eq!(graph.all_paths(), tree.all_paths(), "{name}"),
            (Err(error), Some(expected)) => assert!(error.contains(expected), "{name}: {error}"),
            (found, _) => panic!("{name}: {:?}", found.map(|graph| graph.all_paths())),
        }
    }
}

#[test]
fn any_layout_of_a_tree_is_the_same_graph_or_an_error() {
    let tree = text("tree.txt");
    for seed in 0_u16..4_000 {
        layouts::holds(&tree, &seed.to_le_bytes().repeat(4));
    }
}

/// The bridges between them are not listed, so the devices may be near or far.
#[test]
fn devices_without_their_bridges_have_no_path() {
    let topology = graph(&text("vvv-grep.txt")).unwrap();
    let (gpu, nic) = (topology.gpus()[0].address, topology.nics()[0].address);
    assert_eq!(topology.path(gpu, nic), PathKind::Unknown);
}

#[test]
fn paths_of_pp_are_bridges() {
    let listed = "\
0000:15:01.0 PCI bridge: Intel Corporation Device 352a
0000:15:01.0/16:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch
0000:15:01.0/16:00.0/17:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch
0000:15:01.0/16:00.0/17:00.0/18:00.0 3D controller: NVIDIA Corporation GH100
0000:15:01.0/16:00.0/17:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch
0000:15:01.0/16:00.0/17:01.0/19:00.0 Infiniband controller: Mellanox Technologies MT2910 Family
";
    let topology = graph(listed).unwrap();
    let (gpu, nic) = (topology.gpus()[0].address, topology.nics()[0].address);
    assert_eq!(topology.path(gpu, nic), PathKind::Pix);
}

#[test]
fn matrices_are_compared_with_their_machines() {
    for (matrix, name, compares) in [
        ("a800-nccl933-legend.matrix.txt", "a800-nccl-933", true),
        ("a800-nccl933-no-legend.matrix.txt", "a800-nccl-933", true),
        ("mi300a-amd-smi.matrix.txt", "mi300a", true),
        ("v100-cubemesh-nccltests29.matrix.txt", "v100-cube-mesh", true),
    ] {
        let comparison = compared(matrix, name);
        assert_eq!(comparison.differences, [], "{matrix}");
        assert_eq!(comparison.unread, Vec::<String>::new(), "{matrix}");
        assert_eq!(comparison.compared > 15, compares, "{matrix}: {comparison}");
    }
    assert!(compared("v100-cubemesh-nccltests29.matrix.txt", "v100-cube-mesh").unknown_nvlinks > 0);
}

#[test]
fn rows_that_are_not_read_are_named() {
    let comparison = compared("joined-cells.matrix.txt", "a800-nccl-933");
    let rows: Vec<&str> = comparison.unread.iter().map(String::as_str).collect();
    assert_eq!(
        rows,
        ["line 3, `GPU0`: `NODENODE` is no path", "line 5, `GPU2`: `SYSNODE` is no path"]
    );
    let prefixed = PostedMatrix::parse(&text("mpirun-prefix.matrix.txt")).unwrap();
    assert_eq!(prefixed.compare(&machine("a800-nccl-933")).compared, 64);
    let table = PostedMatrix::parse(&text("markdown-table.matrix.txt")).unwrap();
    assert_eq!(table.compare(&machine("a800-nccl-933")).compared, 16);
    let error = PostedMatrix::parse(&text("xpu-smi.matrix.txt")).unwrap_err().to_string();
    assert!(error.starts_with("line 1: `         GPU 0/0"), "{error}");
}
