//! Compares the machines in the crate, cell by cell, with published matrices of them:
//! `nvidia-smi topo -m`, `rocm-smi --showtopo`.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads the matrices beside the machines")]

#[path = "published/file.rs"]
mod file;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use file::{Affinity, Paths, Published};
use topology_graph::fixture::{MACHINES, machine, plant, vm_size};
use topology_graph::{HostRoot, Overlay, PciAddress, Snapshot, Topology, read};

/// The machine; for matrices that show PCIe only, with GPUs of a model without NVLinks.
fn topology(published: &Published) -> Topology {
    let text = machine(&published.machine).unwrap();
    let text = match published.paths {
        Paths::All => text.to_owned(),
        Paths::Pcie => without_nvlinks(text),
    };
    let overlay = vm_size(&published.machine).and_then(Overlay::built_in);
    Topology::build(&snapshot(&text), overlay.as_ref()).0
}

/// The same machine with L40S GPUs.
fn without_nvlinks(text: &str) -> String {
    let models = ["0x20b0", "0x2335"].map(|id| format!("device = {id}"));
    let changed =
        models.iter().fold(text.to_owned(), |text, id| text.replace(id, "device = 0x26b9"));
    assert_ne!(changed, text, "a GPU with NVLinks");
    changed
}

fn snapshot(text: &str) -> Snapshot {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    read(&HostRoot::at(root.path())).unwrap()
}

fn matrices() -> BTreeMap<String, Published> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("machines");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let matrices = files.filter(|path| path.extension().is_some_and(|ending| ending == "matrix"));
    matrices
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            (name.clone(), Published::parse(&name, &text))
        })
        .collect()
}

/// Finds a device that a matrix names by address or RDMA device.
fn address(topology: &Topology, device: &str) -> PciAddress {
    let by_name = || {
        let named = |nic: &&topology_graph::Nic| nic.rdma_device.as_deref() == Some(device);
        topology.nics().iter().find(named).map(|nic| nic.address)
    };
    let address = device.parse().ok().or_else(by_name);
    address.ok_or_else(|| format!("`{device}` is no device of the machine")).unwrap()
}

/// The result of comparing one matrix.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    compared: usize,
    differing: usize,
    not_seen: usize,
    affinities: usize,
}

fn hold(name: &str, published: &Published) -> Held {
    let topology = topology(published);
    let mut held = Held::default();
    let mut wrong = Vec::new();
    let mut used = vec![0; published.differences.len()];
    for (row, a) in &published.devices {
        for (column, b) in &published.devices {
            let Some(expected) = published.cell(row, column) else {
                held.not_seen += 1;
                continue;
            };
            let found = topology.path(address(&topology, a), address(&topology, b)).to_string();
            held.compared += 1;
            if found == *expected {
                continue;
            }
            held.differing += 1;
            let known = published.difference(row, column, expected, &found);
            match known {
                Some(index) => used[index] += 1,
                None => wrong.push(format!("{row} {column}: {found}, published {expected}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    assert!(used.iter().all(|count| *count > 0), "{name}: an allowed difference no longer occurs");
    held.affinities = affinities(name, published, &topology);
    held
}

/// Compares CPUs and NUMA nodes of the GPUs; returns the number of comparisons.
fn affinities(name: &str, published: &Published, topology: &Topology) -> usize {
    if published.affinity == Affinity::Restricted {
        return 0;
    }
    let spec = topology.to_spec();
    let with_cpus: Vec<u32> = spec
        .shape
        .numa_nodes
        .iter()
        .filter(|node| !node.cpus.is_empty())
        .map(|node| node.node)
        .collect();
    let mut compared = 0;
    for (gpu, device) in published.devices.iter().filter(|(name, _)| name.starts_with("GPU")) {
        let numa = topology.gpu(address(topology, device)).unwrap().numa.unwrap().0;
        if let Some(nodes) = published.numa_affinity(gpu) {
            let nodes: Vec<u32> =
                nodes.into_iter().filter(|node| with_cpus.contains(node)).collect();
            assert_eq!(nodes, [numa], "{name} {gpu}: NUMA affinity");
            compared += 1;
        }
        if let Some(cpus) = published.cpu_affinity(gpu) {
            let node = spec.shape.numa_nodes.iter().find(|node| node.node == numa).unwrap();
            assert_eq!(node.cpus, *cpus, "{name} {gpu}: CPU affinity");
            compared += 1;
        }
    }
    compared
}

/// Allowed differences are in the files, each with its reason at the top. An allowed difference
/// that no longer occurs is an error.
#[test]
fn every_published_cell_is_found() {
    let matrices = matrices();
    assert!(matrices.len() >= 15, "{}", matrices.len());
    let mut table = String::from("matrix: cells compared, differing, not seen; affinities\n");
    for (name, published) in &matrices {
        let Held { compared, differing, not_seen, affinities } = hold(name, published);
        let size = published.devices.len();
        assert_eq!(compared + not_seen, size * size, "{name}");
        writeln!(table, "{name}: {compared}, {differing}, {not_seen}; {affinities}").unwrap();
    }
    insta::assert_snapshot!(table);
}

/// The facts of a machine have a source or are marked synthetic.
#[test]
fn every_machine_names_its_sources() {
    for (name, text) in MACHINES {
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let says = |what: &str| head.iter().any(|line| line.contains(what));
        let is_empty = text.lines().all(|line| !line.contains("/pci"));
        let cites = ["[slice]", "[nccl]", "[matrix]", "[lspci]", "[xml]", "[test]", "[rdma_topo]"];
        let has_source = cites.iter().any(|tag| says(&format!("# {tag}")));
        assert!(is_empty || has_source || says("[synthetic] every"), "{name} has no source");
        assert!(!says("[inferred]") || says("[inferred] from"), "{name}: inferred from what?");
    }
}
