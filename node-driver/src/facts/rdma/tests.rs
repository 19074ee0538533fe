//! Facts from netlink complete those from sysfs, and never replace them.

use super::*;
use crate::facts::host;
use crate::facts::ports::KnownPorts;
use crate::kernel::netlink::tests::message;
use crate::kernel::nldev::{
    GET, INDEX, NAME, NETDEV, NODE_GUID, PORT, PORT_GET, PORT_STATE, PROTOCOL, SYS_IMAGE_GUID,
};
use publication::live;
use std::collections::BTreeSet;
use std::fs;
use topology_graph::{HostRoot, LinkLayer, PortState};

const GUID: u64 = 0xb859_9f03_00a1_b2c4;

/// The kernel's replies about a device with one port.
fn device(index: u32, name: &str, protocol: &str, state: u8, netdev: Option<&str>) -> Vec<u8> {
    let zero = |text: &str| [text.as_bytes(), b"\0"].concat();
    let (index, one, guid) = (index.to_ne_bytes(), 1_u32.to_ne_bytes(), GUID.to_ne_bytes());
    let (name, protocol) = (zero(name), zero(protocol));
    let (none, netdev) = ([0; 8], netdev.map(zero));
    let device = message(
        GET,
        &[
            (INDEX, &index),
            (NAME, &name),
            (PORT, &one),
            (NODE_GUID, &guid),
            (SYS_IMAGE_GUID, &none),
            (PROTOCOL, &protocol),
        ],
    );
    let state = [state];
    let mut port: Vec<(u16, &[u8])> =
        vec![(INDEX, &index), (NAME, &name), (PORT, &one), (PORT_STATE, &state)];
    port.extend(netdev.as_deref().map(|netdev| (NETDEV, netdev)));
    [device, message(PORT_GET, &port)].concat()
}

fn port(number: u32, state: PortState, netdev: Option<&str>) -> Port {
    Port { number, state: Some(state), netdev: netdev.map(str::to_owned) }
}

#[test]
fn devices_and_ports_are_taken_from_replies() {
    let stream = [
        device(3, "rxe0", "roce", 4, Some("eth1")),
        device(1, "mlx5_0", "ib", 2, None),
        // A port of an unknown device.
        message(PORT_GET, &[(INDEX, &[9; 4]), (PORT, &[1, 0, 0, 0]), (PORT_STATE, &[4])]),
    ];
    let guid = Some("b859:9f03:00a1:b2c4".to_owned());
    let named = |name: &str, link_layer, port| RdmaLink {
        name: name.to_owned(),
        node_guid: guid.clone(),
        sys_image_guid: None,
        link_layer: Some(link_layer),
        ports: vec![port],
    };
    assert_eq!(
        devices_in(&stream.concat()),
        [
            named("mlx5_0", LinkLayer::InfiniBand, port(1, PortState::Init, None)),
            named("rxe0", LinkLayer::Ethernet, port(1, PortState::Active, Some("eth1"))),
        ]
    );
    assert_eq!(devices_in(b"nothing of the kind"), []);
}

#[test]
fn facts_from_sysfs_are_kept() {
    let before = live::facts("aks-mi300x").snapshot;
    let name = before.rdma[0].name.clone();
    let told = RdmaLink {
        name,
        node_guid: Some("0000:0000:0000:0001".to_owned()),
        sys_image_guid: None,
        link_layer: Some(LinkLayer::Ethernet),
        ports: vec![port(1, PortState::Down, None), port(2, PortState::Active, None)],
    };
    let mut after = before.clone();
    complete(&mut after, &[told]);
    let (known, completed) = (&before.rdma[0], &after.rdma[0]);
    assert_eq!(completed.pci, known.pci);
    assert_eq!(completed.ports[0], known.ports[0], "the port's state from sysfs stays");
    assert_eq!(completed.ports[1].link_layer, Some(LinkLayer::Ethernet));
    assert_eq!(completed.ports[1].state, Some(PortState::Active));
    assert_eq!(completed.node_guid.as_deref(), Some("0000:0000:0000:0001"), "sysfs had none");
    assert_eq!(before.rdma[1..], after.rdma[1..]);
}

#[test]
fn a_device_without_a_parent_belongs_to_its_interface() {
    let mut snapshot = live::facts("eks-p4d").snapshot;
    let netdev = snapshot.netdevs.iter().find(|netdev| netdev.pci.is_some()).unwrap().clone();
    let ports = vec![port(1, PortState::Active, Some(&netdev.name))];
    complete(&mut snapshot, &[RdmaLink { name: "siw0".to_owned(), ports, ..RdmaLink::default() }]);
    let names: Vec<_> = snapshot.rdma.iter().map(|device| device.name.as_str()).collect();
    assert!(names.is_sorted() && names.contains(&"siw0"), "{names:?}");
    let of_function: Vec<_> = snapshot.rdma_of(netdev.pci.unwrap()).collect();
    assert_eq!(of_function.len(), 1);
    assert_eq!(of_function[0].name, "siw0");
}

/// Both lists are empty on a machine without RDMA.
#[test]
fn netlink_and_sysfs_of_this_machine_name_the_same_devices() {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut listed: Vec<_> =
        devices.map(|entry| entry.file_name().into_string().unwrap()).collect();
    listed.sort();
    let told: Vec<_> =
        read(&BTreeSet::new()).unwrap().into_iter().map(|device| device.name).collect();
    assert_eq!(told, listed);
}

#[test]
fn a_recorded_machine_is_not_asked() {
    let root = live::plant("aks-mi300x");
    let host = HostRoot::at(root.path());
    let snapshot = host::snapshot(&host, &KnownPorts::default()).unwrap();
    assert_eq!(snapshot, topology_graph::read(&host).unwrap());
}
