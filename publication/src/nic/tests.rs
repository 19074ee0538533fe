//! Which parts of a machine are NICs; one line per function or interface.

use super::*;
use crate::attributes::encode;
use crate::cloud::CloudMetadata;
use crate::decision::{Decision, decide};
use crate::held::Held;
use crate::history::History;
use crate::judge::{Given, Rules};
use crate::machine::{Facts, Usage};
use crate::network::{DefaultRoute, NetworkFacts};
use std::fmt::Write;
use std::time::Instant;
use topology_graph::{HostRoot, Snapshot, fixture};

/// Plants `ADDRESS CLASS DRIVER [rdma LINK_LAYER] [net NAME]` lines.
fn snapshot(lines: &str) -> Snapshot {
    let mut text = String::from("/sys/devices/system/node/online = 0\n");
    for (index, line) in lines.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let after = |key: &str| words.iter().position(|word| *word == key).map(|at| words[at + 1]);
        let address = words[0];
        writeln!(text, "[sys/devices/pci0000:00/{address}]").unwrap();
        writeln!(text, "class = {}\nvendor = 0x15b3\ndevice = 0x101e", words[1]).unwrap();
        writeln!(text, "/sys/bus/pci/devices/{address} -> .").unwrap();
        if words[2] != "none" {
            writeln!(text, "driver -> /sys/bus/pci/drivers/{}", words[2]).unwrap();
        }
        if let Some(layer) = after("rdma") {
            writeln!(text, "infiniband/mlx5_{index}/ports/1/link_layer = {layer}").unwrap();
            writeln!(text, "infiniband/mlx5_{index}/device -> .").unwrap();
            writeln!(text, "/sys/class/infiniband/mlx5_{index} -> ./infiniband/mlx5_{index}")
                .unwrap();
        }
        if let Some(name) = after("net") {
            writeln!(text, "net/{name}/type = 1\n/sys/class/net/{name} -> ./net/{name}").unwrap();
        }
    }
    planted(&text)
}

fn planted(text: &str) -> Snapshot {
    let root = tempfile::tempdir().unwrap();
    fixture::plant(text, root.path()).unwrap();
    topology_graph::read(&HostRoot::at(root.path())).unwrap()
}

fn interface(index: u32, name: &str, kind: Option<&str>) -> Interface {
    Interface {
        index,
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        ..Interface::default()
    }
}

/// What is published of a machine, and what is not.
fn decided(snapshot: &Snapshot, network: &NetworkFacts) -> Decision {
    let (snapshot, network) = (snapshot.clone(), network.clone());
    decide(&Facts { snapshot, network, cloud: CloudMetadata::default(), rails: None })
}

/// The NICs that pods can get, in the order of the machine.
fn given(snapshot: &Snapshot, network: &NetworkFacts) -> Vec<NicState> {
    let given = decided(snapshot, network).nics;
    let mut all = nics(snapshot, network);
    all.retain(|nic| given.iter().any(|given| given.name == nic.name));
    all
}

/// `NAME: type [interface]` of each NIC.
fn render(snapshot: &Snapshot, network: &NetworkFacts) -> Vec<String> {
    given(snapshot, network)
        .into_iter()
        .map(|nic| {
            let interface = nic.own_interface().map(|interface| format!(" {}", interface.name));
            format!("{}: {:?}{}", nic.name, nic.link_type, interface.unwrap_or_default())
        })
        .collect()
}

#[test]
fn link_types_of_functions_come_from_their_ports() {
    let snapshot = snapshot(
        "0000:01:00.0 0x020700 mlx5_core rdma InfiniBand
         0000:02:00.0 0x020700 mlx5_core rdma InfiniBand net ib0
         0000:03:00.0 0x020000 mlx5_core rdma Ethernet net eth0
         0000:04:00.0 0x020000 mlx5_core rdma Ethernet
         0000:05:00.0 0x020000 mlx5_core
         0000:06:00.0 0x020000 efa rdma Unknown
         0000:07:00.0 0x00ff00 erdma rdma Unknown
         0000:08:00.0 0x020000 vfio-pci
         0000:09:00.0 0x020000 none
         0000:0a:00.0 0x030200 nvidia
         0000:0b:00.0 0x020700 mlx5_core",
    );
    let network = NetworkFacts {
        interfaces: vec![interface(2, "eth0", None), interface(3, "ib0", Some("ipoib"))],
        default_routes: Vec::new(),
        ..NetworkFacts::default()
    };
    assert_eq!(
        render(&snapshot, &network),
        [
            "pci-0000-01-00-0: InfiniBand",
            "pci-0000-02-00-0: InfiniBand",
            "pci-0000-03-00-0: Ethernet eth0",
            "pci-0000-04-00-0: Ethernet",
            "pci-0000-05-00-0: Ethernet",
            "pci-0000-06-00-0: Verbs",
            "pci-0000-07-00-0: Verbs",
            "pci-0000-0b-00-0: InfiniBand",
        ],
        "a RoCE function whose interface is in a pod stays Ethernet"
    );
}

#[test]
fn nics_that_the_host_needs_are_left_out() {
    let snapshot = snapshot(
        "0000:01:00.0 0x020000 mlx5_core net eth0
         0000:02:00.0 0x020000 mlx5_core net eth1
         0000:03:00.0 0x020700 mlx5_core rdma InfiniBand net ib0",
    );
    let mut network = NetworkFacts {
        interfaces: vec![
            interface(2, "eth0", None),
            interface(3, "eth1", None),
            interface(4, "ib0", Some("ipoib")),
        ],
        default_routes: Vec::new(),
        ..NetworkFacts::default()
    };
    assert_eq!(render(&snapshot, &network).len(), 3);
    let mut lose = |interface, expected: &[&str]| {
        network.default_routes =
            vec![DefaultRoute { ipv6: false, metric: 0, interface, advertised: false }];
        assert_eq!(render(&snapshot, &network), expected);
    };
    lose(2, &["pci-0000-02-00-0: Ethernet eth1", "pci-0000-03-00-0: InfiniBand"]);
    lose(3, &["pci-0000-01-00-0: Ethernet eth0", "pci-0000-03-00-0: InfiniBand"]);
    lose(4, &["pci-0000-01-00-0: Ethernet eth0", "pci-0000-02-00-0: Ethernet eth1"]);
}

#[test]
fn a_pods_veth_is_not_taken_for_a_functions_interface() {
    let snapshot = snapshot("0000:01:00.0 0x020000 virtio-pci net eth0");
    for (kind, expected) in [
        (None, "pci-0000-01-00-0: Ethernet eth0"),
        (Some("veth"), "pci-0000-01-00-0: Ethernet"),
        (Some("bridge"), "pci-0000-01-00-0: Ethernet"),
    ] {
        let interfaces = vec![interface(2, "eth0", kind)];
        let network = NetworkFacts { interfaces, ..NetworkFacts::default() };
        assert_eq!(render(&snapshot, &network)[0], expected);
    }
}

#[test]
fn virtual_interfaces() {
    let snapshot = snapshot("");
    let member = Interface { master: Some(4), ..interface(6, "veth1", Some("veth")) };
    let network = NetworkFacts {
        interfaces: vec![
            interface(1, "lo", None),
            interface(2, "dummy0", Some("dummy")),
            interface(3, "macvlan_A", Some("macvlan")),
            interface(4, "br0", Some("bridge")),
            interface(5, "cali12345", Some("veth")),
            member,
            interface(7, "veth2", Some("veth")),
            interface(8, "pci-0", Some("dummy")),
            interface(9, "ifb0", Some("ifb")),
        ],
        default_routes: Vec::new(),
        ..NetworkFacts::default()
    };
    assert_eq!(
        render(&snapshot, &network),
        [
            "dummy0: Virtual dummy0",
            "net-6d6163766c616e5f41: Virtual macvlan_A",
            "veth2: Virtual veth2",
            "net-7063692d30: Virtual pci-0",
        ]
    );
}

/// A NIC that supports 32 GT/s x16, below a root port. The arguments are the port's maximum
/// and the link's current speed and width.
fn in_slot(port: Option<(&str, u8)>, now: (&str, u8)) -> Snapshot {
    let mut text = String::from(
        "/sys/devices/system/node/online = 0\n[sys/devices/pci0000:00/0000:00:01.0]\n\
         class = 0x060400\nvendor = 0x8086\ndevice = 0x352a\n\
         /sys/bus/pci/devices/0000:00:01.0 -> .\n",
    );
    if let Some((speed, width)) = port {
        let now = ("2.5 GT/s PCIe", 1);
        writeln!(text, "max_link_speed = {speed}\nmax_link_width = {width}").unwrap();
        writeln!(text, "current_link_speed = {}\ncurrent_link_width = {}", now.0, now.1).unwrap();
    }
    writeln!(
        text,
        "[sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0]\nclass = 0x020700\n\
         vendor = 0x15b3\ndevice = 0x1021\ndriver -> /sys/bus/pci/drivers/mlx5_core\n\
         max_link_speed = 32.0 GT/s PCIe\nmax_link_width = 16\n\
         current_link_speed = {}\ncurrent_link_width = {}\n\
         /sys/bus/pci/devices/0000:01:00.0 -> .",
        now.0, now.1
    )
    .unwrap();
    planted(&text)
}

#[test]
fn a_link_is_degraded_if_both_ends_support_more() {
    let (fast, slow) = ("32.0 GT/s PCIe", "16.0 GT/s PCIe");
    for (port, now, expected) in [
        (Some((fast, 16)), (fast, 16), Some(false)),
        (Some((fast, 16)), (slow, 16), Some(true)),
        (Some((fast, 16)), (fast, 8), Some(true)),
        // The slot supports no more.
        (Some((slow, 16)), (slow, 16), Some(false)),
        (Some((fast, 8)), (fast, 8), Some(false)),
        (Some((slow, 8)), (slow, 8), Some(false)),
        // The link is degraded even for such a slot.
        (Some((slow, 8)), (slow, 4), Some(true)),
        (Some((slow, 8)), ("8.0 GT/s PCIe", 8), Some(true)),
        // A port without link data, as in a virtual machine.
        (None, (fast, 16), Some(false)),
        (None, (fast, 8), Some(true)),
        (Some((fast, 16)), ("Unknown", 0), None),
    ] {
        let snapshot = in_slot(port, now);
        let degraded: Vec<_> = given(&snapshot, &NetworkFacts::default())
            .iter()
            .map(|nic| nic.link_degraded)
            .collect();
        assert_eq!(degraded, [expected], "{port:?} {now:?}");
    }
}

/// A ConnectX in switchdev mode with a scalable function: the directory also holds interfaces
/// and RDMA devices of other functions. Device numbers have one or two digits.
fn with_a_scalable_function() -> Facts {
    let snapshot = planted(
        "[sys/devices/pci0000:00/0000:3b:00.0]
         class = 0x020000
         vendor = 0x15b3
         device = 0x101d
         /sys/bus/pci/devices/0000:3b:00.0 -> .
         driver -> /sys/bus/pci/drivers/mlx5_core
         infiniband/mlx5_10/ports/1/link_layer = Ethernet
         /sys/class/infiniband/mlx5_10 -> ./infiniband/mlx5_10
         mlx5_core.sf.4/infiniband/mlx5_2/ports/1/link_layer = Ethernet
         /sys/class/infiniband/mlx5_2 -> ./mlx5_core.sf.4/infiniband/mlx5_2
         net/own/phys_port_name = p0
         /sys/class/net/own -> ./net/own
         net/a_representor/phys_port_name = pf0vf0
         /sys/class/net/a_representor -> ./net/a_representor
         mlx5_core.sf.4/net/a_scalable/type = 1
         /sys/class/net/a_scalable -> ./mlx5_core.sf.4/net/a_scalable",
    );
    let names = ["a_representor", "a_scalable", "own"];
    let interfaces = (2..).zip(names).map(|(index, name)| interface(index, name, None));
    let network = NetworkFacts { interfaces: interfaces.collect(), ..NetworkFacts::default() };
    Facts { snapshot, network, cloud: CloudMetadata::default(), rails: None }
}

#[test]
fn a_functions_own_interface_and_rdma_device_are_used() {
    let Facts { snapshot, network, .. } = with_a_scalable_function();
    let nic = nics(&snapshot, &network).remove(0);
    assert_eq!(nic.own_interface().map(|interface| interface.name.as_str()), Some("own"));
    assert_eq!(nic.rdma.map(|rdma| rdma.name).as_deref(), Some("mlx5_10"));

    let two = snapshot_of_two_rdma_devices();
    let names: Vec<_> = two.rdma_of(two.pci[0].address).map(|rdma| &rdma.name).collect();
    assert_eq!(names, ["mlx5_2", "mlx5_10"]);
}

/// The function and what represents others are ports of its switch.
#[test]
fn a_scalable_function_with_rdma_is_a_nic_of_its_own() {
    let mut facts = with_a_scalable_function();
    for interface in facts.network.interfaces.iter_mut().filter(|it| it.name != "a_scalable") {
        interface.is_switch_port = true;
    }
    let (snapshot, network) = (&facts.snapshot, &facts.network);
    let nic = "pci-0000-3b-00-0-sf-4";
    assert_eq!(render(snapshot, network), [format!("{nic}: Ethernet a_scalable")]);
    assert_eq!(withheld_of(snapshot, network), ["pci-0000-3b-00-0 switch-port Some(\"own\")"]);
    let scalable = given(snapshot, network).remove(0);
    assert_eq!(scalable.rdma.as_ref().map(|rdma| rdma.name.as_str()), Some("mlx5_2"));
    assert!(scalable.can_be_prepared());

    // Without its own interface, a function has none: that of another is not taken for it.
    let mut snapshot = snapshot.clone();
    snapshot.netdevs.retain(|netdev| netdev.name != "own");
    let function = nics(&snapshot, network).remove(0);
    assert_eq!((&function.interface, &function.netdev), (&None, &None));
    assert_eq!(withheld_of(&snapshot, network).len(), 1);

    // A pod has it, also its RDMA device.
    let (rules, now) = (Rules::default(), Instant::now());
    let look = |history: &History, facts: &Facts, held: Held| {
        let usage = Usage { held, ..Usage::default() };
        let (machine, after) = history.look(&mut facts.clone(), &usage, &rules, now);
        let given = machine.given(&rules).map(|nic| encode(nic, &Given::default()));
        (given.collect::<Vec<_>>(), after)
    };
    let (before, history) = look(&History::default(), &facts, Held::new());
    facts.snapshot.rdma.retain(|rdma| rdma.name != "mlx5_2");
    facts.snapshot.netdevs.retain(|netdev| netdev.name != "a_scalable");
    facts.network.interfaces.retain(|interface| interface.name != "a_scalable");
    let holding = Holding { interface: true, rdma: true };
    let (after, _) = look(&history, &facts, [(nic.to_owned(), holding)].into());
    assert_eq!((before.len(), &after), (1, &before));
}

fn snapshot_of_two_rdma_devices() -> Snapshot {
    let mut snapshot = snapshot("0000:01:00.0 0x020700 mlx4_core rdma InfiniBand");
    let own = snapshot.rdma[0].clone();
    let named = |name: &str| RdmaDevice { name: name.to_owned(), ..own.clone() };
    snapshot.rdma = vec![named("mlx5_10"), named("mlx5_2")];
    snapshot
}

/// The ports of a machine's adapters, bonded one by one.
fn bonded() -> (Snapshot, NetworkFacts) {
    let snapshot = planted(fixture::machine("x86-roce-lag").unwrap());
    let mut network = NetworkFacts::default();
    for adapter in 0..8 {
        let bond = 100 + adapter;
        network.interfaces.push(interface(bond, &format!("bond{adapter}"), Some("bond")));
        for port in 0..2 {
            let name = format!("port{adapter}{port}");
            let member = interface(10 + 2 * adapter + port, &name, None);
            network.interfaces.push(Interface { master: Some(bond), ..member });
        }
    }
    (snapshot, network)
}

/// Name, and reason and interface of each function that is not published.
fn withheld_of(snapshot: &Snapshot, network: &NetworkFacts) -> Vec<String> {
    let withheld = decided(snapshot, network).withheld.into_iter();
    withheld.map(|nic| format!("{} {} {:?}", nic.name, nic.reason.word(), nic.interface)).collect()
}

#[test]
fn a_bond_of_both_ports_of_an_adapter_is_one_nic() {
    let (snapshot, mut network) = bonded();
    let all = render(&snapshot, &network);
    assert_eq!(all.len(), 8);
    assert_eq!(all[0], "pci-0000-1b-00-0: Ethernet bond0");
    let withheld = withheld_of(&snapshot, &network);
    assert_eq!(withheld.len(), 8);
    assert_eq!(withheld[0], "pci-0000-1b-00-1 port-of-bond Some(\"port01\")");

    let decision = decided(&snapshot, &network);
    let bonded = decision.topology.nics.iter().filter(|nic| !nic.bonded.is_empty());
    let bonded: Vec<_> = bonded.map(|nic| format!("{} with {}", nic.at, nic.bonded[0])).collect();
    assert_eq!((bonded.len(), bonded[0].as_str()), (8, "0000:1b:00.0 with 0000:1b:00.1"));
    let attribute = |name: &str| {
        decision.devices[0].attributes.as_ref().unwrap().get(name).map(|value| format!("{value:?}"))
    };
    assert!(attribute("dra.net/ifName").unwrap().contains("bond0"));
    assert!(attribute("dra.net/rdmaDevice").unwrap().contains("mlx5_bond_0"));
    assert!(attribute("dranet.io/role").unwrap().contains("compute"));

    // The node's own traffic goes through one.
    network.default_routes =
        vec![DefaultRoute { ipv6: false, metric: 0, interface: 100, advertised: false }];
    assert_eq!(render(&snapshot, &network).len(), 7);
    let of_first: Vec<_> = withheld_of(&snapshot, &network).into_iter().take(2).collect();
    assert_eq!(
        of_first,
        ["pci-0000-1b-00-0 uplink Some(\"port00\")", "pci-0000-1b-00-1 uplink Some(\"port01\")",]
    );
    network.default_routes.clear();

    // The operator keeps one port of another.
    network.choice.host = vec!["0000:2b:00.1".parse().unwrap()];
    assert_eq!(render(&snapshot, &network).len(), 7);
    assert!(
        withheld_of(&snapshot, &network)
            .contains(&"pci-0000-2b-00-0 host-nic Some(\"port10\")".to_owned())
    );

    // A bridge has the bond of a third: its traffic is the host's.
    network.choice.host.clear();
    network.interfaces[6].master = Some(900);
    assert_eq!(network.interfaces[6].name, "bond2");
    network.interfaces.push(interface(900, "br0", Some("bridge")));
    assert_eq!(render(&snapshot, &network).len(), 7);
}

/// An adapter for XDR, whose verbs device has a name after that of the other one.
#[test]
fn the_device_for_subnet_managers_is_no_nic() {
    let snapshot = planted(
        "[sys/devices/pci0000:00/0000:0b:00.0]
         class = 0x020700
         vendor = 0x15b3
         device = 0x1023
         /sys/bus/pci/devices/0000:0b:00.0 -> .
         driver -> /sys/bus/pci/drivers/mlx5_core
         infiniband/smi1/ports/1/link_layer = InfiniBand
         infiniband/smi1/ports/2/link_layer = InfiniBand
         /sys/class/infiniband/smi1 -> ./infiniband/smi1
         infiniband_mad/umad1/ibdev = smi1
         /sys/class/infiniband_mad/umad1 -> ./infiniband_mad/umad1
         infiniband/train0/ports/1/link_layer = InfiniBand
         /sys/class/infiniband/train0 -> ./infiniband/train0
         infiniband_verbs/uverbs0/ibdev = train0
         /sys/class/infiniband_verbs/uverbs0 -> ./infiniband_verbs/uverbs0",
    );
    let network = NetworkFacts::default();
    let nics = nics(&snapshot, &network);
    let names: Vec<_> = nics.into_iter().map(|nic| nic.rdma.map(|rdma| rdma.name)).collect();
    assert_eq!(names, [Some("train0".to_owned())]);
}
