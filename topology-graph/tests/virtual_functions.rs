//! Virtual functions next to their physical functions: one port is one NIC.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::collections::{BTreeMap, BTreeSet};

use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, NicRole, PciAddress, RdmaDevice, Snapshot, Topology, read};

fn topology(text: &str) -> Topology {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0
}

/// The partners of each NIC.
fn partners(topology: &Topology) -> BTreeMap<PciAddress, BTreeSet<PciAddress>> {
    let mut partners: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for pair in topology.pairs() {
        partners.entry(pair.nic).or_default().insert(pair.gpu);
    }
    partners
}

fn at(address: &str) -> PciAddress {
    address.parse().unwrap()
}

/// Two ports with one virtual function each, below the switch of four GPUs: two GPUs share a port.
#[test]
fn virtual_functions_have_the_partner_of_their_port() {
    let partners = partners(&topology(machine("a100-pcie-8gpu").unwrap()));
    for (socket, gpus) in [("33", ["34", "35"]), ("9a", ["9b", "9c"])] {
        let of = |function: u8| &partners[&at(&format!("0000:{socket}:00.{function}"))];
        assert_eq!(of(0), &gpus.map(|gpu| at(&format!("0000:{gpu}:00.0"))).into());
        assert_eq!((of(2), of(3)), (of(0), of(1)));
        assert_ne!(of(0), of(1));
    }
    assert_eq!(partners.len(), 8);
}

/// A virtual machine has only virtual functions, and they are its NICs.
#[test]
fn without_their_port_virtual_functions_are_nics() {
    let text = machine("a100-pcie-8gpu").unwrap();
    let ports = ["0000:33:00.0", "0000:33:00.1", "0000:9a:00.0", "0000:9a:00.1"];
    let mut kept = String::new();
    let mut is_kept = true;
    for line in text.lines() {
        if line.starts_with('[') {
            is_kept = !ports.iter().any(|port| line.ends_with(&format!("{port}]")));
        }
        if is_kept {
            kept.extend([line, "\n"]);
        }
    }
    let topology = topology(&kept);
    assert_eq!(topology.nics().len(), 4);
    let partners = partners(&topology);
    assert_eq!(partners.len(), 4);
    let gpus: BTreeSet<_> = partners.values().flatten().collect();
    assert_eq!(gpus.len(), 8, "{partners:?}");
}

/// Without this, a graph would change when it passes through the API server.
#[test]
fn published_graphs_know_virtual_functions() {
    let topology = topology(machine("a100-pcie-8gpu").unwrap());
    let back = Topology::from_spec(&topology.to_spec()).unwrap();
    assert_eq!(back.pairs(), topology.pairs());
}

/// Adds this number of virtual functions to each NIC whose link layer is InfiniBand.
fn add_virtual_functions(snapshot: &mut Snapshot, number: u8) {
    let nics = snapshot.rdma.iter().filter_map(|rdma| {
        let physical = snapshot.function(rdma.pci?)?;
        (physical.class == 0x02_0700).then(|| (rdma.clone(), physical.clone()))
    });
    let nics: Vec<_> = nics.collect();
    for (rdma, physical) in nics {
        let address = physical.address;
        for index in 1..=number {
            let (device, function) = (index / 8, index % 8);
            let own = PciAddress::new(address.domain(), address.bus(), device, function).unwrap();
            let mut made = physical.clone();
            (made.address, made.physical_function) = (own, Some(address));
            made.path = made.path.replace(&address.to_string(), &own.to_string());
            made.device = 0x101e;
            snapshot.pci.push(made);
            let name = format!("{}v{index}", rdma.name);
            snapshot.rdma.push(RdmaDevice { name, pci: Some(own), ..rdma.clone() });
        }
    }
    snapshot.pci.sort_by_key(|function| function.address);
}

/// Objects in the API server have at most 1.5 MiB, and each node's watchers read all of it.
#[test]
fn eight_gpus_and_512_functions_are_an_object_below_256_kibibytes() {
    let root = tempfile::tempdir().unwrap();
    plant(machine("dgx-h100").unwrap(), root.path()).unwrap();
    let mut snapshot = read(&HostRoot::at(root.path())).unwrap();
    add_virtual_functions(&mut snapshot, 63);
    let (topology, _) = Topology::build(&snapshot, None);
    assert_eq!((topology.gpus().len(), topology.nics().len()), (8, 4 + 512));
    let compute = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute).count();
    assert_eq!(compute, 512);
    let spec = topology.to_spec();
    let bytes = serde_json::to_string(&spec).unwrap().len();
    println!("{bytes} bytes");
    assert!(bytes < 256 << 10, "{bytes} bytes");
    assert_eq!(Topology::from_spec(&spec).unwrap().nics(), topology.nics());
}
