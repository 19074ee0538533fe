//! Prepares every device of every recorded machine that has an interface or an RDMA device.

use super::*;
use crate::kernel::attach::rdma::NetnsMode;
use crate::model::host_link::HostLink;
use crate::model::plan::{Child, PlannedDevice};
use crate::prepare::inventory::Inventory;
use machine::{claim, host_link, interfaces, planned, plant_characters};
use process::chain::Chain;
use publication::live;
use publication::network::{Interface, NetworkFacts};
use publication::nic::LinkType;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use topology_graph::{HostRoot, fixture};

#[path = "../../../../tests/recorded/machine.rs"]
mod machine;

/// Prepares each published device. Returns how many there are, and how many have no interface.
fn prepare_all(name: &str, root: &Path, network: Option<NetworkFacts>) -> (usize, usize) {
    let (mut number, mut without) = (0, 0);
    planned(root, network, None, |nic, made| {
        let made = made.unwrap_or_else(|error| panic!("{name} {}: {}", nic.name, Chain(&error)));
        let [device] = &made.devices[..] else { panic!("one device") };
        if nic.link_type != LinkType::InfiniBand {
            assert_eq!(device.link.is_some(), nic.own_interface().is_some(), "{name} {}", nic.name);
        }
        let mut verbs = device.rdma.iter().flat_map(|rdma| &rdma.chars);
        let has_verbs = verbs.any(|char| char.name.starts_with("uverbs"));
        let has_it = nic.rdma.as_ref().is_none_or(|rdma| rdma.uverbs.is_empty() || has_verbs);
        assert!(has_it, "{name} {}", nic.name);
        number += 1;
        without += usize::from(device.link.is_none());
    });
    (number, without)
}

#[test]
fn every_nic_of_every_machine_can_be_prepared() {
    for name in live::MACHINES {
        let root = live::plant(name);
        let (count, without) = prepare_all(name, root.path(), Some(live::network(name)));
        assert!(count > 0, "{name}");
        // EFAs have no interface.
        assert!(name != "eks-p4d" || without == 4, "{name}: {without}");
    }
    for (name, text) in fixture::MACHINES {
        let root = tempfile::tempdir().unwrap();
        fixture::plant(text, root.path()).unwrap();
        prepare_all(name, root.path(), None);
    }
}

/// The interface of a function may be in a pod, or it never had one. Its ports say nothing about it.
#[test]
fn a_function_without_an_interface_is_prepared_unless_it_had_one() {
    for link_layer in ["Ethernet", "Unknown", "InfiniBand"] {
        let root = live::plant("eks-p4d");
        plant_characters(root.path());
        let port = root.path().join("sys/class/infiniband/rdmap16s27/ports/1/link_layer");
        fs::write(port, link_layer).unwrap();
        let host = HostRoot::at(root.path());
        let snapshot = topology_graph::read(&host).unwrap();
        let mut inventory = Inventory::new(&snapshot, &NetworkFacts::default(), &host);
        let device = "pci-0000-10-1b-0";
        for had_one in [false, true] {
            inventory.had_interface = had_one.then(|| device.to_owned()).into_iter().collect();
            let facts = Facts {
                inventory: &inventory,
                links: &BTreeMap::new(),
                abilities: &BTreeMap::new(),
                netns_mode: NetnsMode::Shared,
                held: &[],
                policy: Policy::default(),
                boot_id: None,
                cloud_nics: &[],
            };
            let made = plan(&claim(device), &facts).map_err(|error| Chain(&error).to_string());
            let is_refused = had_one && link_layer != "InfiniBand";
            assert_eq!(made.is_err(), is_refused, "{link_layer} {made:?}");
            let spec = made.map(|plan| plan.devices[0].rdma.clone());
            assert!(spec.map_or(is_refused, |rdma| {
                rdma.is_some_and(|rdma| rdma.chars[0].name == "uverbs0")
            }));
        }
    }
}

/// A machine on which the ports of the first adapter are bonded.
fn bonded() -> (Inventory, BTreeMap<String, HostLink>) {
    let root = tempfile::tempdir().unwrap();
    fixture::plant(fixture::machine("x86-roce-lag").unwrap(), root.path()).unwrap();
    plant_characters(root.path());
    let host = HostRoot::at(root.path());
    let snapshot = topology_graph::read(&host).unwrap();
    let mut network = interfaces(&snapshot);
    let bond = Some("bond".to_owned());
    let bond =
        Interface { index: 100, name: "bond0".to_owned(), kind: bond, ..Interface::default() };
    for port in &mut network.interfaces {
        if ["port00", "port01"].contains(&port.name.as_str()) {
            port.master = Some(bond.index);
        }
    }
    network.interfaces.push(bond);
    let inventory = Inventory::new(&snapshot, &network, &host);
    let links = network.interfaces.iter().map(|it| (it.name.clone(), host_link(it))).collect();
    (inventory, links)
}

/// What a claim with these parameters gets of a device of that machine.
fn of_bond(device: &str, parameters: Option<Value>) -> Result<PlannedDevice, String> {
    let (inventory, links) = bonded();
    let facts = Facts {
        inventory: &inventory,
        links: &links,
        abilities: &BTreeMap::new(),
        netns_mode: NetnsMode::Shared,
        held: &[],
        policy: Policy::default(),
        boot_id: None,
        cloud_nics: &[],
    };
    let mut claim = claim(device);
    claim.devices[0].parameters = parameters;
    let made = plan(&claim, &facts).map_err(|error| Chain(&error).to_string());
    made.map(|mut plan| plan.devices.remove(0))
}

#[test]
fn a_bond_of_an_adapters_ports_gives_its_rdma_device_and_children() {
    let first = "pci-0000-1b-00-0";
    let device = of_bond(first, None).unwrap();
    let rdma = device.rdma.unwrap();
    assert_eq!((rdma.name.as_str(), rdma.chars.len()), ("mlx5_bond_0", 1));
    assert_eq!(device.link, None, "the kernel moves no bond");

    let child = json!({"interface": {"type": "macvlan", "addresses": ["10.0.0.7/24"]}});
    let link = of_bond(first, Some(child)).unwrap().link.unwrap();
    assert_eq!((link.host.name.as_str(), link.child), ("bond0", Some(Child::MacVlan)));

    let moved = json!({"interface": {"addresses": ["10.0.0.7/24"]}});
    let refused = of_bond(first, Some(moved)).unwrap_err();
    assert!(refused.contains("interface `bond0` joins its ports"), "{refused}");
    let second = of_bond("pci-0000-1b-00-1", None).unwrap_err();
    assert!(second.contains("is not on this machine"), "{second}");
    // The ports of other adapters are not bonded.
    let other = of_bond("pci-0000-2b-00-1", None).unwrap();
    assert_eq!(other.link.map(|link| link.host.name), Some("port11".to_owned()));
}
