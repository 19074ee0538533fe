//! Plants, reads, builds and renders every machine in the crate.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use topology_graph::fixture::{MACHINES, machine, plant, vm_size};
use topology_graph::{
    Format, HostRoot, Level, NodeTopologySpec, Overlay, PathKind, Role, Snapshot, Topology, crd,
    diff, from_json, json, matrix, read,
};

const GB300: &str = "azure-gb300";

/// The unmodified machines, planted once, because planting takes most of the time.
static SNAPSHOTS: LazyLock<BTreeMap<&str, Snapshot>> =
    LazyLock::new(|| MACHINES.iter().map(|(_, text)| (*text, planted(text))).collect());

fn snapshot_of(text: &str) -> Snapshot {
    SNAPSHOTS.get(text).cloned().unwrap_or_else(|| planted(text))
}

fn planted(text: &str) -> Snapshot {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    read(&HostRoot::at(root.path())).unwrap()
}

fn topology_of(text: &str) -> Topology {
    Topology::build(&snapshot_of(text), None).0
}

/// The overlay that the machine's node driver would use.
fn overlay_of(name: &str) -> Option<Overlay> {
    vm_size(name).and_then(Overlay::built_in)
}

/// A report of a graph with everything that a person would look at.
fn report(topology: &Topology) -> String {
    let mut text = matrix(topology);
    for level in Level::ALL {
        writeln!(text, "\nCells by {level}:").unwrap();
        for cell in topology.cells(level) {
            writeln!(text, "  {}: GPUs {:?} NICs {:?}", cell.key, cell.gpus, cell.nics).unwrap();
        }
    }
    text.push_str("\nPairs:\n");
    for pair in topology.pairs() {
        let gdr = topology.gdr(pair.gpu, pair.nic);
        write!(text, "  {} {} {:<4} GDR {gdr}", pair.gpu, pair.nic, pair.path).unwrap();
        if let Some(megabytes) = topology.megabytes_per_second(pair.gpu, pair.nic) {
            write!(text, ", {megabytes} MB/s").unwrap();
        }
        text.push('\n');
    }
    text.push_str("\nAnomalies:\n");
    for anomaly in topology.anomalies() {
        writeln!(text, "  {anomaly}").unwrap();
    }
    text
}

#[test]
fn machines_from_kernel_facts_alone() {
    for (name, text) in MACHINES {
        insta::assert_snapshot!((*name).to_owned(), report(&topology_of(text)));
    }
}

#[test]
fn machines_with_their_overlays() {
    for (name, text) in MACHINES {
        if let Some(overlay) = overlay_of(name) {
            let (topology, _) = Topology::build(&snapshot_of(text), Some(&overlay));
            insta::assert_snapshot!(format!("{name}_with_overlay"), report(&topology));
        }
    }
}

#[test]
fn gb300_with_its_overlay() {
    let overlay = Overlay::built_in("standard_nd128isr_gb300_v6").unwrap();
    let snapshot = snapshot_of(machine(GB300).unwrap());
    let (topology, anomalies) = Topology::build(&snapshot, Some(&overlay));
    assert_eq!(anomalies, []);
    insta::assert_snapshot!(report(&topology));
    insta::assert_yaml_snapshot!("gb300_as_a_kubernetes_object", topology.to_spec());
}

#[test]
fn every_format() {
    let overlay = Overlay::built_in("Standard_ND128isr_GB300_v6").unwrap();
    let snapshot = snapshot_of(machine(GB300).unwrap());
    let (topology, _) = Topology::build(&snapshot, Some(&overlay));
    for format in Format::ALL {
        let text = format.render(&topology);
        assert!(text.ends_with('\n'), "{format}");
        insta::assert_snapshot!(format!("gb300_as_{format}"), text);
    }
}

#[test]
fn json_is_read_back() {
    for (name, text) in MACHINES {
        let topology = topology_of(text);
        let back = from_json(&json(&topology)).unwrap();
        assert_eq!(answers(&back), answers(&topology), "{name}");
    }
    for (text, expected) in [
        ("", "failed to read the graph as JSON"),
        (
            r#"{"version": 2, "topology": {"shape": {"hash": ""}}}"#,
            "unsupported version 2: this program reads version 1",
        ),
        (
            r#"{"version": 1, "topology": {"shape": {"hash": "0"}}}"#,
            "unexpected value `0` in `shape.hash`",
        ),
    ] {
        assert_eq!(from_json(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn differences() {
    let text = machine(GB300).unwrap();
    let before = topology_of(text);
    assert_eq!(diff(&before, &before), "");
    let changed = text
        .replace("GPU-ad11da28", "GPU-00000000")
        .replace("0104:00:00.0", "0105:00:00.0")
        .replacen("numa_node = 0", "numa_node = 1", 2);
    insta::assert_snapshot!(diff(&before, &topology_of(&changed)));
}

#[test]
fn gpus_are_known_by_their_drivers() {
    let uuids = |name| {
        let topology = topology_of(machine(name).unwrap());
        topology.gpus().iter().map(|gpu| gpu.uuid.clone()).collect::<Vec<_>>()
    };
    assert_eq!(uuids("azure-mi300x")[7].as_deref(), Some("0x000000005a5a0007"));
    assert_eq!(uuids("aws-p4d")[0].as_deref(), Some("GPU-8a10b6f7-077c-d51f-48f0-eba64feb5e9f"));
    assert_eq!(uuids("numa-unknown"), [None, None]);
}

#[test]
fn gb300_facts() {
    insta::assert_yaml_snapshot!(snapshot_of(machine(GB300).unwrap()));
}

#[test]
fn shapes_name_hardware_and_not_machines() {
    let text = machine(GB300).unwrap();
    let shape = |text: &str| topology_of(text).shape();
    let other_identities = text
        .replace("GPU-ad11da28", "GPU-00000000")
        .replace("mlx5_", "ibp")
        .replace("0015:5dff", "0015:5d00")
        .replace("01a7c1d0", "01a7c1d1");
    assert_ne!(text, other_identities);
    assert_eq!(shape(&other_identities), shape(text));
    for (from, to) in [
        ("numa_node = 1", "numa_node = 0"),
        ("0x31c2", "0x31c3"),
        ("0019:06", "0019:07"),
        ("pci0104:00", "pci0105:00"),
        ("distance = 10 40", "distance = 10 20"),
    ] {
        assert_ne!(shape(&text.replace(from, to)), shape(text), "{from} {to}");
    }
}

/// Everything that is decided from a graph.
fn answers(topology: &Topology) -> String {
    format!("{} {:?} {:?}", report(topology), topology.shape(), topology.gpus())
}

#[test]
fn graphs_survive_kubernetes() {
    for (name, text) in MACHINES {
        for overlay in [None, overlay_of(name).as_ref()] {
            let (topology, _) = Topology::build(&snapshot_of(text), overlay);
            let json = serde_json::to_string(&topology.to_spec()).unwrap();
            if topology.gpus().len() <= 8 && topology.nics().len() <= 16 {
                assert!(json.len() < 16 << 10, "{name} has {} bytes", json.len());
            }
            let spec: NodeTopologySpec = serde_json::from_str(&json).unwrap();
            let back = Topology::from_spec(&spec).unwrap();
            assert_eq!(answers(&back), answers(&topology), "{name}");
            assert_eq!(back.to_spec(), spec, "{name}");
        }
    }
}

/// An object with only what it must have.
#[test]
fn a_small_object_is_read() {
    let text = r#"{
        "summary": {"gpus": 1, "nics": 1, "numaNodes": 1, "anomalies": 0},
        "shape": {
            "hash": "0123456789abcdef",
            "vertices": [
                {"at": "0000:15:01.0", "under": "pci0000:15"},
                {"at": "0000:16:00.0", "under": "0000:15:01.0"},
                {"at": "0000:17:00.0", "under": "0000:16:00.0", "maxLink": "32000x16"},
                {"at": "0000:17:01.0", "under": "0000:16:00.0", "maxLink": "32000x16"},
                {"at": "0000:18:00.0", "under": "0000:17:00.0", "role": "gpu", "numa": 0},
                {"at": "0000:19:00.0", "under": "0000:17:01.0", "role": "nic", "numa": 0,
                 "maxLink": "16000x16"}
            ],
            "numaNodes": [{"node": 0, "cpus": "0-3", "distances": [10]}]
        },
        "nics": [{"at": "0000:19:00.0", "role": "compute", "link": "16000x8"}]
    }"#;
    let spec: NodeTopologySpec = serde_json::from_str(text).unwrap();
    let topology = Topology::from_spec(&spec).unwrap();
    let (gpu, nic) = (topology.gpus()[0].address, topology.nics()[0].address);
    let route = topology.route(gpu, nic).unwrap();
    assert_eq!(route.kind, PathKind::Pix);
    let roles: Vec<_> = route.hops.iter().map(|hop| hop.role).collect();
    let port = Role::SwitchPort;
    assert_eq!(roles, [Role::Gpu, port, port, port, Role::Nic]);
    // The NIC's link is the narrowest: it runs eight of its sixteen lanes.
    let bottleneck = route.bottleneck().unwrap();
    assert_eq!((bottleneck.hop, bottleneck.megabytes_per_second), (4, 15_752));
    assert_eq!(topology.cells(Level::RootPort)[0].key, "0000:15:01.0");
    assert_eq!(topology.shape().to_string(), "0123456789abcdef");
}

/// Two bare-metal GB300 combined: every kind of fact, twice.
fn eight_gpus_and_sixteen_nics() -> Topology {
    let text = machine("gb300-data-direct").unwrap();
    let mut second = text.replace("mlx5_", "mlx5_1").replace("uverbs", "uverbs1");
    for domain in ["0000", "0002", "0008", "0009", "0010", "0012", "0018", "0019"] {
        second = second.replace(&format!("{domain}:"), &format!("1{}:", &domain[1..]));
    }
    let adapters = text.matches("vpd @ 0x1c = 0x30303030").count();
    let second = second.replace("vpd @ 0x1c = 0x30303030", "vpd @ 0x1c = 0x30303031");
    assert!(adapters > 0);
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    plant(&second, root.path()).unwrap();
    let (topology, _) = Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None);
    topology.on_fabric(Some("b5b0b1e0-5e5e-4b5b-8b8b-1b1b1b1b1b1b".to_owned()))
}

#[test]
fn eight_gpus_and_sixteen_nics_are_an_object_below_sixteen_kibibytes() {
    let topology = eight_gpus_and_sixteen_nics();
    assert_eq!((topology.gpus().len(), topology.nics().len()), (8, 16));
    let spec = topology.to_spec();
    let bytes = serde_json::to_string(&spec).unwrap().len();
    println!("{bytes} bytes");
    assert!(bytes < 16 << 10, "{bytes} bytes");
    assert_eq!(Topology::from_spec(&spec).unwrap().to_spec(), spec);
}

#[test]
fn snapshots_survive_their_file() {
    for (name, text) in MACHINES {
        let snapshot = snapshot_of(text);
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot, "{name}");
    }
}

#[test]
fn malformed_objects_are_refused_with_the_field() {
    let good = topology_of(machine(GB300).unwrap()).to_spec();
    let refused = |change: fn(&mut NodeTopologySpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        Topology::from_spec(&spec).unwrap_err().to_string()
    };
    let hash = refused(|spec| spec.shape.hash = "x".to_owned());
    assert_eq!(hash, "unexpected value `x` in `shape.hash`");
    let place = refused(|spec| spec.shape.vertices[0].at = "0:0".to_owned());
    assert_eq!(place, "unexpected value `0:0` in `shape.vertices.at`");
    let orphan = refused(|spec| drop(spec.shape.vertices.remove(0)));
    assert_eq!(
        orphan,
        "the vertices do not form a forest: the parent `0008:00:00.0` of vertex `0008:06:00.0` does not exist"
    );
}

#[test]
fn a_root_without_sysfs_is_an_error_with_its_path() {
    let root = tempfile::tempdir().unwrap();
    let error = read(&HostRoot::at(root.path())).unwrap_err().to_string();
    let sys = root.path().join("sys");
    assert!(error.starts_with(&format!("found no sysfs at `{}`", sys.display())), "{error}");
}

#[test]
fn the_resource_definition() {
    insta::assert_yaml_snapshot!(crd());
}
