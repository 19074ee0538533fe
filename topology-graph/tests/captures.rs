//! Captures of real machines: read without unpacking, rendered, compared with hwloc's own listing,
//! and captured again.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads the captures beside it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use roxmltree::{Document, Node, ParsingOptions};
use topology_graph::fixture::{MACHINES, machine, plant};
use topology_graph::{
    CpuSet, HostRoot, Identities, NumaNode, PathKind, PciAddress, Snapshot, Topology, capture,
    matrix, read,
};

fn captures() -> BTreeMap<String, PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let archives = files.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".tar.bz2")?.to_owned();
        Some((name, path))
    });
    archives.collect()
}

fn host(path: &PathBuf) -> HostRoot {
    HostRoot::in_archive(path, &fs::read(path).unwrap()).unwrap()
}

#[test]
fn captures_as_machines() {
    let captures = captures();
    assert_eq!(captures.len(), 5);
    for (name, path) in captures {
        let snapshot = read(&host(&path)).unwrap();
        let (topology, anomalies) = Topology::build(&snapshot, None);
        let anomalies: Vec<_> = anomalies.iter().map(|anomaly| format!("\n  {anomaly}")).collect();
        let numa = snapshot.numa_nodes.iter().map(|node| {
            format!("\n  {}: cpus {} distances {:?}", node.node, node.cpus, node.distances)
        });
        let report = format!(
            "{} PCI functions\n\n{}\nNUMA nodes:{}\n\nAnomalies:{}",
            snapshot.pci.len(),
            matrix(&topology),
            numa.collect::<Vec<_>>().concat(),
            anomalies.concat(),
        );
        insta::assert_snapshot!(name, report);
    }
}

/// For each PCI function in hwloc's listing: the bridges above it, and the CPUs of the nearest
/// enclosing object that has CPUs.
type Listing = BTreeMap<PciAddress, (Vec<PciAddress>, CpuSet)>;

fn listing(xml: &str) -> Listing {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options).unwrap();
    let mut listing = Listing::new();
    for node in document.descendants().filter(|node| bus_id(*node).is_some()) {
        let mut bridges: Vec<_> = node.ancestors().skip(1).filter_map(bus_id).collect();
        bridges.reverse();
        let cpus = node.ancestors().find_map(|around| around.attribute("cpuset")).unwrap();
        listing.insert(bus_id(node).unwrap(), (bridges, cpu_set(cpus)));
    }
    listing
}

fn bus_id(node: Node<'_, '_>) -> Option<PciAddress> {
    node.attribute("pci_busid")?.parse().ok()
}

/// `0x000000ff,0xffffffff`.
fn cpu_set(mask: &str) -> CpuSet {
    CpuSet::from_mask(&mask.replace("0x", "")).unwrap()
}

/// The number of functions that hwloc lists, and how many of them have a NUMA node from the kernel.
fn agreement(snapshot: &Snapshot, listing: &Listing, forced: bool) -> (usize, usize) {
    let mut local = 0;
    for (address, (bridges, cpus)) in listing {
        let function = snapshot.function(*address).unwrap();
        assert_eq!(&function.bridges, bridges, "{address}");
        let node = snapshot.numa_nodes.iter().find(|node| Some(node.node) == function.numa_node);
        if let Some(node) = node {
            assert!(forced || &node.cpus == cpus, "{address}: {} and {cpus}", node.cpus);
            local += 1;
        }
    }
    (listing.len(), local)
}

#[test]
fn captures_agree_with_hwloc() {
    for (name, path) in captures() {
        let listed = path.with_file_name(format!("{name}.xml"));
        let Ok(xml) = fs::read_to_string(&listed) else { continue };
        // The environment of hwloc forced the localities in this listing.
        let forced = name.ends_with("pcilocality");
        let found = agreement(&read(&host(&path)).unwrap(), &listing(&xml), forced);
        let expected = match name.as_str() {
            "32em64t-2n8c+dax+nvme+mic+dimms" => (136, 43),
            "40intel64-2g2n4c+pcilocality" => (37, 1),
            "nvidia-dgx-gb10" => (0, 0),
            _ => unreachable!("{name} has no listing in XML"),
        };
        assert_eq!(found, expected, "{name}");
    }
}

/// In sysfs a switch is an upstream and a downstream port. Two devices with at most this many
/// bridges below their common ancestor have at most one switch between them.
const BRIDGES_OF_ONE_SWITCH: usize = 1;

/// The path kind of two functions in hwloc's tree. Their nearest common object is a bridge (PIX if
/// both are within one switch of it, else PXB), a host bridge (PHB), or the parent of the host
/// bridges: one NUMA node (NODE) or several (SYS).
fn listed_path(a: Node<'_, '_>, b: Node<'_, '_>) -> PathKind {
    let (a, b): (Vec<_>, Vec<_>) =
        (a.ancestors().skip(1).collect(), b.ancestors().skip(1).collect());
    let (below_a, common) = nearest_common(&a, &b);
    let (below_b, _) = nearest_common(&b, &a);
    match common.attribute("bridge_type") {
        Some("1-1") if below_a.max(below_b) <= BRIDGES_OF_ONE_SWITCH => PathKind::Pix,
        Some("1-1") => PathKind::Pxb,
        Some("0-1") => PathKind::Phb,
        _ if nodes(&a) == nodes(&b) && nodes(&a).len() == 1 => PathKind::Node,
        _ => PathKind::Sys,
    }
}

/// The number of objects around the first node but not around both, and the nearest that is around
/// both.
fn nearest_common<'x, 'i>(
    around: &[Node<'x, 'i>],
    other: &[Node<'x, 'i>],
) -> (usize, Node<'x, 'i>) {
    let at = around.iter().position(|node| other.contains(node)).unwrap();
    (at, around[at])
}

/// The NUMA nodes of the nearest object that has any.
fn nodes(around: &[Node<'_, '_>]) -> Vec<u32> {
    let set = around.iter().find_map(|node| node.attribute("nodeset")).unwrap();
    // hwloc writes node sets in the form of CPU sets.
    cpu_set(set).iter().collect()
}

/// GPUs, NICs and disks with their NUMA nodes.
fn endpoints(topology: &Topology) -> Vec<(PciAddress, Option<NumaNode>)> {
    let gpus = topology.gpus().iter().map(|gpu| (gpu.address, gpu.numa));
    let nics = topology.nics().iter().map(|nic| (nic.address, nic.numa));
    let nvmes = topology.nvmes().iter().map(|nvme| (nvme.address, nvme.numa));
    gpus.chain(nics).chain(nvmes).collect()
}

/// Compares every two endpoints that share a host bridge or have a NUMA node from the kernel.
#[test]
fn matrices_agree_with_hwloc() {
    let mut compared: BTreeMap<PathKind, usize> = BTreeMap::new();
    for (name, path) in captures() {
        let listed = path.with_file_name(format!("{name}.xml"));
        let Ok(xml) = fs::read_to_string(&listed) else { continue };
        // The environment of hwloc forced the localities in this listing.
        let forced = name.ends_with("pcilocality");
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document = Document::parse_with_options(&xml, options).unwrap();
        let functions: BTreeMap<PciAddress, Node<'_, '_>> =
            document.descendants().filter_map(|node| Some((bus_id(node)?, node))).collect();
        let (topology, _) = Topology::build(&read(&host(&path)).unwrap(), None);
        let all = endpoints(&topology);
        for (index, (a, a_numa)) in all.iter().enumerate() {
            for (b, b_numa) in all.iter().skip(index + 1) {
                let (Some(at), Some(bt)) = (functions.get(a), functions.get(b)) else { continue };
                let listed = listed_path(*at, *bt);
                let known = a_numa.is_some() && b_numa.is_some() && !forced;
                if listed.satisfies(PathKind::Phb) || known {
                    assert_eq!(topology.path(*a, *b), listed, "{name} {a} {b}");
                    *compared.entry(listed).or_default() += 1;
                }
            }
        }
    }
    let found: Vec<_> = compared.into_iter().collect();
    assert_eq!(found, [(PathKind::Pix, 3), (PathKind::Phb, 6), (PathKind::Sys, 3)]);
}

/// Tests [`listed_path`] on nested switches, which no available listing has.
#[test]
fn the_listing_distinguishes_one_switch_from_several() {
    let bridge = |inside: &str| format!("<o bridge_type='1-1'>{inside}</o>");
    let device = |id| format!("<o id='{id}'/>");
    let nested = bridge(&bridge(&device("far")));
    let switch = bridge(
        &[bridge(&device("a")), bridge(&(device("b") + &device("b1"))), bridge(&nested)].concat(),
    );
    let text = format!(
        "<o nodeset='0x3'><o nodeset='0x1'><o bridge_type='0-1'>{}{}</o><o bridge_type='0-1'>{}</o></o>\
         <o nodeset='0x2'>{}</o></o>",
        bridge(&switch),
        bridge(&device("c")),
        device("d"),
        device("e")
    );
    let document = Document::parse(&text).unwrap();
    let node = |id| document.descendants().find(|node| node.attribute("id") == Some(id)).unwrap();
    for (a, b, expected) in [
        ("b", "b1", PathKind::Pix),
        ("a", "b", PathKind::Pix),
        ("a", "far", PathKind::Pxb),
        ("a", "c", PathKind::Phb),
        ("a", "d", PathKind::Node),
        ("a", "e", PathKind::Sys),
    ] {
        assert_eq!(listed_path(node(a), node(b)), expected, "{a} {b}");
        assert_eq!(listed_path(node(b), node(a)), expected, "{b} {a}");
    }
}

fn captured(host: &HostRoot, identities: Identities) -> Vec<u8> {
    let mut bytes = Vec::new();
    capture(host, identities, &mut bytes).unwrap();
    bytes
}

#[test]
fn captures_of_captures_are_the_same_machine() {
    for (name, path) in captures() {
        let host = host(&path);
        let before = read(&host).unwrap();
        let bytes = captured(&host, Identities::Kept);
        let after = HostRoot::in_archive("capture", &bytes).unwrap();
        assert_eq!(read(&after).unwrap(), before, "{name}");
        assert_eq!(captured(&after, Identities::Kept), bytes, "{name}");
    }
}

#[test]
fn captures_of_planted_machines_are_the_same_machine() {
    for (name, text) in MACHINES {
        let root = tempfile::tempdir().unwrap();
        plant(text, root.path()).unwrap();
        let host = HostRoot::at(root.path());
        let bytes = captured(&host, Identities::Kept);
        let after = HostRoot::in_archive("capture", &bytes).unwrap();
        assert_eq!(read(&after).unwrap(), read(&host).unwrap(), "{name}");
    }
}

#[test]
fn masked_captures_show_hardware_and_no_identity() {
    let root = tempfile::tempdir().unwrap();
    plant(machine("azure-gb300").unwrap(), root.path()).unwrap();
    let bytes = captured(&HostRoot::at(root.path()), Identities::Masked);
    let host = HostRoot::in_archive("capture", &bytes).unwrap();
    let snapshot = read(&host).unwrap();
    assert_eq!(snapshot.gpus[1].uuid.as_deref(), Some("GPU-00000000-0000-0000-0000-000000000006"));
    assert_eq!(snapshot.rdma[0].node_guid.as_deref(), Some("0000:0000:0000:0001"));
    assert_eq!(snapshot.rdma[0].sys_image_guid, snapshot.rdma[0].node_guid);
    let shape = |snapshot| Topology::build(&snapshot, None).0.shape();
    let whole = read(&HostRoot::at(root.path())).unwrap();
    assert_eq!(shape(snapshot), shape(whole));
}

#[test]
fn invalid_archives_are_refused() {
    for (bytes, expected) in [
        (
            &b"BZh91AY&SY"[..],
            "failed to read the archive (tar, plain or compressed by gzip or bzip2)",
        ),
        (
            &[0x1f, 0x8b, 8][..],
            "failed to read the archive (tar, plain or compressed by gzip or bzip2)",
        ),
        (&b""[..], "found no directory `sys` in the archive, not even one level down"),
        (&[7; 2000][..], "failed to read the archive (tar, plain or compressed by gzip or bzip2)"),
    ] {
        assert_eq!(HostRoot::in_archive("x", bytes).unwrap_err().to_string(), expected);
    }
}
