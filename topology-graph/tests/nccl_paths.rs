//! What NCCL and RCCL find by our topology files, beside what they find without one: on every machine of the
//! crate, every capture and every published tree.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads and unpacks the machines beside it")]

#[path = "nccl_paths/reader.rs"]
mod reader;
#[path = "nccl_paths/tree.rs"]
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use reader::{Kind, Machine, Program};
use tempfile::TempDir;
use topology_graph::fixture::{MACHINES, plant, vm_size};
use topology_graph::{
    HostRoot, NcclFileNeed, NcclXml, Overlay, PathKind, PciAddress, Topology, nccl_xml,
    nccl_xml_of, read,
};
use tree::Tree;

/// A machine below a root, with the overlay that its node driver would use.
struct Case {
    name: String,
    root: TempDir,
    topology: Topology,
}

impl Case {
    fn new(name: &str, root: TempDir) -> Self {
        let overlay = vm_size(name).and_then(Overlay::built_in);
        let snapshot = read(&HostRoot::at(root.path())).unwrap();
        let (topology, _) = Topology::build(&snapshot, overlay.as_ref());
        Self { name: name.to_owned(), root, topology }
    }

    fn tree(&self) -> Tree {
        tree::read(self.root.path())
    }

    /// GPUs and NICs on a NUMA node, of which a file can say something.
    fn devices(&self) -> Vec<String> {
        let gpus = self.topology.gpus().iter().map(|gpu| gpu.address);
        let nics = self.topology.nics().iter().map(|nic| nic.address);
        gpus.chain(nics).map(|address| address.to_string()).collect()
    }

    fn program(&self) -> Program {
        let is_amd = self.topology.gpus().iter().any(|gpu| gpu.vendor == 0x1002);
        if is_amd { Program::Rccl } else { Program::Nccl }
    }

    /// The pairs of devices whose paths differ with the file and without it, and the number of all.
    fn differences(&self, file: &str) -> (Vec<String>, usize) {
        let (tree, devices) = (self.tree(), self.devices());
        let found = |file| Machine::found(self.program(), &tree, file, &devices);
        let (with, without) = (found(Some(file)), found(None));
        let mut differences = Vec::new();
        let mut compared = 0;
        for (index, a) in devices.iter().enumerate() {
            for b in &devices[index + 1..] {
                compared += 1;
                let (with, without) = (with.path(a, b), without.path(a, b));
                if with != without {
                    let name = &self.name;
                    differences.push(format!("{name} {a} {b}: {with:?}, without {without:?}"));
                }
            }
        }
        (differences, compared)
    }
}

fn planted() -> impl Iterator<Item = Case> {
    MACHINES.iter().map(|(name, text)| {
        let root = tempfile::tempdir().unwrap();
        plant(text, root.path()).unwrap();
        Case::new(name, root)
    })
}

fn trees() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/trees");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let archives = files.filter(|path| path.extension().is_some_and(|ending| ending == "gz"));
    let mut cases: Vec<Case> = archives.map(|path| unpacked(&path)).collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn unpacked(archive: &Path) -> Case {
    let name = archive.file_name().unwrap().to_str().unwrap().trim_end_matches(".tar.gz");
    let root = tempfile::tempdir().unwrap();
    let file = fs::File::open(archive).unwrap();
    tar::Archive::new(GzDecoder::new(file)).unpack(root.path()).unwrap();
    Case::new(name, root)
}

fn case(name: &str) -> Case {
    let mut all = planted().chain(trees());
    all.find(|case| case.name == name).unwrap()
}

/// On a machine whose sysfs shows all, a file changes no path and no bandwidth.
#[test]
fn paths_by_the_file_are_those_of_the_tree() {
    let mut compared = 0;
    let mut differences = Vec::new();
    for case in planted().chain(trees()) {
        let (bare, _) = Topology::build(&read(&HostRoot::at(case.root.path())).unwrap(), None);
        if !NcclFileNeed::of(&bare).is_file_given() {
            let (differ, all) = case.differences(&nccl_xml(&bare));
            differences.extend(differ);
            compared += all;
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 2_000, "{compared}");
}

/// RCCL has the ports inside of AMD's GPUs as a switch, and the models that it compares with have too.
#[test]
fn gpus_of_amd_are_behind_their_own_switch() {
    for (name, far) in [("mi250x-16gpu", 16), ("mi250x-rccl-8p1h-4", 8)] {
        let case = case(name);
        let (tree, devices) = (case.tree(), case.devices());
        let file = nccl_xml(&case.topology);
        let machine = Machine::found(Program::Rccl, &tree, Some(&file), &devices);
        let near = case.topology.pairs();
        assert!(near.len() >= far, "{name}: {}", near.len());
        for pair in near {
            let path = machine.path(&pair.gpu.to_string(), &pair.nic.to_string());
            assert!(pair.path.satisfies(PathKind::Pxb), "{name}: {pair:?}");
            assert_eq!(path.kind, Kind::Pxb, "{name}: {pair:?}");
        }
    }
}

/// A machine that is read from its own file has the paths of its tree.
#[test]
fn a_graph_of_the_file_has_the_paths_of_the_tree() {
    let mut compared = 0;
    // A file has no data paths, which NCCL finds by itself.
    for case in planted().chain(trees()).filter(|case| case.name != "gb300-data-direct") {
        let overlay = Overlay::from_nccl_xml(&NcclXml::parse(&nccl_xml(&case.topology)).unwrap());
        let (again, _) = Topology::from_overlay(&overlay);
        let known: Vec<PciAddress> = again.nics().iter().map(|nic| nic.address).collect();
        for gpu in again.gpus() {
            for nic in &known {
                let before = case.topology.path(gpu.address, *nic);
                let after = again.path(gpu.address, *nic);
                // A file has no root buses and no sockets.
                let near = |path: PathKind| path.satisfies(PathKind::Pxb);
                assert_eq!(near(before), near(after), "{}: {} {nic}", case.name, gpu.address);
                if near(before) {
                    assert_eq!(before, after, "{}: {} {nic}", case.name, gpu.address);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 300, "{compared}");
}

/// A file is given where it has paths that sysfs does not show.
#[test]
fn a_file_is_given_where_it_has_more() {
    for case in planted().chain(trees()) {
        let need = NcclFileNeed::of(&case.topology);
        let all: BTreeSet<PciAddress> =
            case.devices().iter().map(|device| device.parse().unwrap()).collect();
        let Some(file) = nccl_xml_of(&case.topology, &all) else { continue };
        if need.is_file_given() && !case.topology.nics().is_empty() {
            let (differences, _) = case.differences(&file);
            assert!(!differences.is_empty(), "{}: {need:?}", case.name);
        }
    }
}

/// The decision for each machine with GPUs and NICs, as the table beside the machines has it.
#[test]
fn the_table_of_machines_is_current() {
    let rows = planted().chain(trees()).filter_map(|case| {
        let topology = &case.topology;
        let is_of_use = !topology.gpus().is_empty() && !topology.nics().is_empty();
        let (given, reason) = match NcclFileNeed::of(topology) {
            NcclFileNeed::Efa => ("No", "aws-ofi-nccl writes its own"),
            NcclFileNeed::OwnFile => ("Yes", "The node has a file"),
            NcclFileNeed::Hidden => ("Yes", "Sysfs hides switches or NUMA nodes"),
            NcclFileNeed::Nothing => ("No", "Sysfs shows all"),
        };
        is_of_use.then(|| format!("| `{}` | {given} | {reason} |", case.name))
    });
    let rows: BTreeSet<String> = rows.collect();
    let table = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("machines/NCCL_TOPO_FILE.md");
    let text = fs::read_to_string(table).unwrap();
    let written = text.lines().filter(|line| line.starts_with("| `")).map(str::to_owned);
    assert_eq!(written.collect::<BTreeSet<_>>(), rows);
}

/// The speed of all adapters of a GPU, as aws-ofi-nccl writes it.
#[test]
fn the_first_adapter_of_a_gpu_has_the_speed_of_all() {
    for (name, per_gpu, expected) in
        [("aws-p5", 4, 48_000), ("aws-p5en", 2, 48_000), ("aws-p6-b200", 1, 48_000)]
    {
        for case in trees().into_iter().filter(|case| case.name == name) {
            assert_eq!(NcclFileNeed::of(&case.topology), NcclFileNeed::Efa);
            let tree = case.tree();
            let gpus: Vec<_> = case.topology.gpus().iter().map(|gpu| gpu.address).collect();
            assert_eq!(gpus.len(), 8, "{name}");
            let mut leaders: BTreeMap<PciAddress, Vec<PciAddress>> = BTreeMap::new();
            for pair in case.topology.pairs() {
                leaders.entry(pair.gpu).or_default().push(pair.nic);
            }
            let kept = leaders.iter().flat_map(|(gpu, nics)| nics.iter().chain([gpu])).copied();
            let file = nccl_xml_of(&case.topology, &kept.collect()).unwrap();
            for (gpu, nics) in leaders {
                assert_eq!(nics.len(), per_gpu, "{name}: {nics:?}");
                let (gpu, first) = (gpu.to_string(), nics.iter().min().unwrap().to_string());
                let devices = [gpu.clone(), first.clone()];
                let machine = Machine::found(Program::Nccl, &tree, Some(&file), &devices);
                assert_eq!(machine.path(&gpu, &first).bandwidth, expected, "{name} {gpu}");
            }
        }
    }
}

/// The NIC's own switch is no switch between it and the GPU.
#[test]
fn a_switch_inside_of_a_nic_is_folded() {
    let case = case("mi355x-pollara");
    let cells = case.topology.cells(topology_graph::Level::Switch);
    let both = cells.iter().filter(|cell| cell.gpus.len() == 1 && cell.nics.len() == 1);
    assert_eq!(both.count(), 8);
    assert!(case.topology.pairs().iter().all(|pair| pair.path == PathKind::Pix));
}
