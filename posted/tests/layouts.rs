//! Listings and matrices in the layouts that people post: the same machine in any layout gives the same
//! graph or an error, never another graph.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads the listings beside it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use posted::{Comparison, PostedMatrix, listing};
use topology_graph::{HostRoot, NicRole, PathKind, Topology, read};

#[path = "../fuzz/layouts.rs"]
mod layouts;

use layouts::{WholeListing, WholeMatrix};

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

/// All changes of layout, each with several widths and lines.
fn changes() -> impl Iterator<Item = [u8; 3]> {
    (0..18).flat_map(|kind| {
        (0..=u8::MAX).step_by(19).flat_map(move |at| (0..3).map(move |every| [kind, at, every]))
    })
}

/// The changes that take nothing away, after which all is read: an indentation, quotations, prefixes of `mpirun`,
/// colours, fences, other ends of lines and spaces.
const HARMLESS: [u8; 9] = [0, 2, 3, 8, 9, 10, 12, 15, 16];
/// Half of its cases have as many replies as quoted lines.
const REPLIES: u8 = 14;

/// Runs a check with every change. It returns true if all was read.
fn check_all(name: &str, check: impl Fn(&[u8]) -> bool) {
    let mut read: BTreeMap<u8, Vec<bool>> = BTreeMap::new();
    for bytes in changes() {
        read.entry(bytes[0]).or_default().push(check(&bytes));
    }
    for kind in HARMLESS {
        assert!(read[&kind].iter().all(|is_read| *is_read), "{name}, change {kind}");
    }
    assert!(read[&REPLIES].contains(&true), "{name}");
}

#[test]
fn any_layout_of_a_listing_is_the_same_graph_or_an_error() {
    for (name, text) in [
        ("tree", layouts::TREE),
        ("descriptions", layouts::DETAILS),
        ("paths", layouts::PATHS),
        ("hwloc", layouts::HWLOC),
    ] {
        let listing = WholeListing::new(text);
        check_all(name, |bytes| listing.holds(bytes));
    }
}

fn whole_listings() -> [WholeListing; 4] {
    [layouts::TREE, layouts::DETAILS, layouts::PATHS, layouts::HWLOC].map(WholeListing::new)
}

fn whole_matrix() -> WholeMatrix {
    WholeMatrix::of(graph(layouts::TREE).unwrap())
}

/// As when a mail quotes what a terminal broke. The fuzz targets try more of them.
#[test]
fn two_changes_of_layout_give_the_same_graph_or_an_error() {
    let (listings, matrix) = (whole_listings(), whole_matrix());
    for (first, second) in (0..18).flat_map(|first| (0..18).map(move |second| (first, second))) {
        let bytes = [first, first * 13 + second, 1, second, second * 13 + first, 0];
        for listing in &listings {
            listing.holds(&bytes);
        }
        matrix.holds(&bytes);
    }
}

/// What the fuzz targets have found.
#[test]
fn layouts_that_gave_other_graphs() {
    let listings = whole_listings();
    for bytes in [
        &[0xfe, 0xff, 0x00, 0x05, 0xff][..],
        &[0x00, 0x03, 0x31, 0x28, 0x38, 0x65],
        &[0xff, 0xf3, 0x86, 0x23, 0x20, 0xf3],
        &[0x20, 0x5c, 0xe6, 0x2f, 0x20, 0x46],
        &[0x23, 0x0f, 0x00, 0x7a, 0x7a, 0x28],
        // Two blank lines within a description.
        &[0xe2, 0xdd, 0xa6, 0x05, 0xa6, 0x05, 0x2f],
    ] {
        for listing in &listings {
            listing.holds(bytes);
        }
    }
    // The name of a row in two lines.
    whole_matrix().holds(&[0x4a, 0x09, 0x47, 0x29, 0xb6]);
}

#[test]
fn any_layout_of_a_matrix_has_the_same_cells_or_names_what_is_not_read() {
    let matrix = whole_matrix();
    check_all("matrix", |bytes| matrix.holds(bytes));
}

/// What is cut, or is not what `lspci` writes, is named with its line.
#[test]
fn descriptions_that_are_cut_are_named() {
    for (from, to, expected) in [
        ("Bus: primary=98, secondary=99", "Bus: primary=98,\nsecondary=99", ": `Bus: primary=98,`"),
        ("Bus: primary=98, secondary", "Bus: primary=98, second", ": `Bus: primary=98, second=99"),
        ("3D controller [0302]: NVIDIA", "3D controller [0302]", ": `0000:9b:00.0 3D controller"),
        ("\tNUMA node: 0\n\tBus", "NUMA node: 0\n\tBus", ": `NUMA node: 0`"),
        (
            "0000:9b:00.0 ",
            "0000:97:02.0/00.0/01.0/00.0 ",
            "the path in `0000:97:02.0/00.0/01.0/00.0",
        ),
    ] {
        let text = layouts::DETAILS.replacen(from, to, 1);
        assert_ne!(text, layouts::DETAILS, "{from}");
        let error = graph(&text).map(|_| from).unwrap_err();
        assert!(error.starts_with("line ") && error.contains(expected), "{error}");
    }
}

#[test]
fn objects_of_hwloc_that_are_cut_are_named() {
    for (from, to, expected) in [
        ("pci_busid=\"0002:01:00.0\"", "pci_busid=\"0002:01:\"", "found pci_busid=`0002:01:`"),
        ("nodeset=\"0x00000001\"", "nodeset=\"0x0000g\"", "found nodeset=`0x0000g`"),
        (
            "1000000 40000 0 0",
            "100000040000 0 0",
            "found NVLinkBandwidth=`a matrix that is not square`",
        ),
    ] {
        let error = graph(&layouts::HWLOC.replacen(from, to, 1)).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{error}");
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

/// hwloc shows no rate of a port and no InfiniBand, but the speeds of PCIe links.
#[test]
fn a_listing_of_hwloc_has_the_roles_of_its_machine() {
    let (posted, there) = (graph(&text("p6-b200.hwloc.xml")).unwrap(), machine("aws-p6-b200"));
    let compute = |topology: &Topology| -> Vec<_> {
        let nics = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
        nics.map(|nic| nic.address).collect()
    };
    assert_eq!(compute(&posted), compute(&there));
    assert_eq!(compute(&posted).len(), 8);
    let gpus = || posted.gpus().iter().map(|gpu| gpu.address);
    for (gpu, nic) in gpus().flat_map(|gpu| there.nics().iter().map(move |nic| (gpu, nic.address)))
    {
        assert_eq!(posted.path(gpu, nic), there.path(gpu, nic), "{gpu} {nic}");
    }
}

/// Two NVLinks of version 1 between the P100 of one socket, by their bandwidth.
#[test]
fn a_listing_of_hwloc_has_nvlinks() {
    let topology = graph(&text("power8-nvlink.hwloc.xml")).unwrap();
    let gpus = topology.gpus();
    let path = |a: usize, b: usize| topology.path(gpus[a].address, gpus[b].address).to_string();
    let found = [path(0, 1), path(0, 2), path(2, 3)];
    assert_eq!(found, ["NV2", "SYS", "NV2"]);
    assert!(topology.gpus_with_unknown_nvlinks().is_empty());
}

#[test]
fn a_listing_of_hwloc_has_xgmi() {
    let gpu = |number: u32| {
        format!(
            r#"<object type="PCIDev" gp_index="{number}" pci_busid="0000:0{number}:00.0"
                pci_type="1200 [1002:74a1] [1002:74a1] 00" pci_link_speed="63.015385">
                <object type="OSDev" gp_index="1{number}" name="rsmi{number}" osdev_type="5"/></object>"#
        )
    };
    let gpus: String = (1..4).map(gpu).collect();
    let xml = format!(
        r#"<topology version="2.0"><object type="Machine" nodeset="0x1">
        <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-0f]">{gpus}</object></object>
        <distances2 type="OSDev" nbobjs="3" kind="9" name="XGMIBandwidth" indexing="gp">
        <indexes length="9">11 12 13 </indexes>
        <u64values length="9">1000000 100000 0 100000 1000000 0 0 0 1000000 </u64values>
        </distances2></topology>"#
    );
    let topology = graph(&xml).unwrap();
    let at = |index: usize| topology.gpus()[index].address;
    assert_eq!(topology.path(at(0), at(1)), PathKind::Xgmi);
    assert_eq!(topology.path(at(0), at(2)), PathKind::Phb);
}

#[test]
fn matrices_are_compared_with_their_machines() {
    // Reports leave out the rows of NICs, here one of a GPU too.
    let cut =
        "no row for `GPU7`, `NIC0`, `NIC1`, `NIC2`, `NIC3`, `NIC4`, `NIC5`, `NIC6`, `NIC7`, `NIC8`";
    for (matrix, name, unread) in [
        ("a800-nccl933-legend.matrix.txt", "a800-nccl-933", &[cut][..]),
        ("a800-nccl933-no-legend.matrix.txt", "a800-nccl-933", &[cut]),
        ("mi300a-amd-smi.matrix.txt", "mi300a", &[]),
        (
            "v100-cubemesh-nccltests29.matrix.txt",
            "v100-cube-mesh",
            &["no row for `mlx5_0`, `mlx5_1`"],
        ),
    ] {
        let comparison = compared(matrix, name);
        assert_eq!(comparison.differences, [], "{matrix}");
        assert_eq!(comparison.unread, unread, "{matrix}");
        assert!(comparison.compared > 15, "{matrix}: {comparison}");
    }
    assert!(compared("v100-cubemesh-nccltests29.matrix.txt", "v100-cube-mesh").unknown_nvlinks > 0);
}

#[test]
fn rows_that_are_not_read_are_named() {
    let comparison = compared("joined-cells.matrix.txt", "a800-nccl-933");
    let rows: Vec<&str> = comparison.unread.iter().map(String::as_str).collect();
    assert_eq!(
        rows,
        [
            "line 3, `GPU0`: `NODENODE` is no path",
            "line 5, `GPU2`: `SYSNODE` is no path",
            "no row for `NIC0`, `NIC1`, `NIC2`, `NIC3`",
        ]
    );
    let prefixed = PostedMatrix::parse(&text("mpirun-prefix.matrix.txt")).unwrap();
    assert_eq!(prefixed.compare(&machine("a800-nccl-933")).compared, 64);
    let table = PostedMatrix::parse(&text("markdown-table.matrix.txt")).unwrap();
    assert_eq!(table.compare(&machine("a800-nccl-933")).compared, 16);
    let error = PostedMatrix::parse(&text("xpu-smi.matrix.txt")).unwrap_err().to_string();
    assert!(error.starts_with("line 1: `         GPU 0/0"), "{error}");
}
