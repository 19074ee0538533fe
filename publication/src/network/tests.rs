//! Uplinks of hosts; one line per interface and per route.

use super::*;

/// `INDEX NAME [master N] [lower N]` and `default [v6] [ra] INDEX METRIC` lines.
fn facts(text: &str) -> NetworkFacts {
    let mut facts = NetworkFacts::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u32>().unwrap();
        let after =
            |key: &str| words.iter().position(|word| *word == key).map(|at| number(words[at + 1]));
        if words[0] == "default" {
            facts.default_routes.push(DefaultRoute {
                ipv6: words.contains(&"v6"),
                advertised: words.contains(&"ra"),
                interface: number(words[words.len() - 2]),
                metric: number(words[words.len() - 1]),
            });
        } else {
            facts.interfaces.push(Interface {
                index: number(words[0]),
                name: words[1].to_owned(),
                master: after("master"),
                lower: after("lower"),
                ..Interface::default()
            });
        }
    }
    facts
}

#[test]
fn uplinks_of_hosts() {
    for (what, host, expected) in [
        ("no route", "1 lo\n2 eth0", vec![]),
        ("one", "1 lo\n2 eth0\n3 rdma0\ndefault 2 100", vec![2]),
        ("the lower metric", "2 eth0\n3 wlan0\ndefault 2 100\ndefault 3 600", vec![2]),
        ("two of equal cost", "2 eth0\n3 eth1\n4 eth2\ndefault 2 0\ndefault 3 0", vec![2, 3]),
        ("both families", "2 eth0\n3 eth1\ndefault 2 0\ndefault v6 3 1024", vec![2, 3]),
        (
            "routers of a backend network",
            "2 eth0\n3 rdma0\n4 rdma1\ndefault 2 0\ndefault v6 ra 3 1024\ndefault v6 ra 4 1024",
            vec![2],
        ),
        ("IPv6 only", "2 eth0\n3 rdma0\ndefault v6 ra 2 1024", vec![2]),
        (
            "members of a bond",
            "2 eth0 master 4\n3 eth1 master 4\n4 bond0\n5 eth2\ndefault 4 0",
            vec![2, 3, 4],
        ),
        (
            "a VLAN on a bond in a bridge",
            "2 eth0 master 4\n4 bond0\n5 bond0.7 lower 4 master 6\n6 br0\n7 tap0 master 6\ndefault 6 0",
            vec![2, 4, 5, 6, 7],
        ),
        (
            "a VF below a paravirtual interface",
            "2 eth0\n3 enP1s1 master 2\ndefault 2 0",
            vec![2, 3],
        ),
        (
            "a master that is its own member",
            "2 eth0 master 3\n3 br0 master 2\ndefault 2 0",
            vec![2, 3],
        ),
    ] {
        assert_eq!(facts(host).uplinks().into_iter().collect::<Vec<_>>(), expected, "{what}");
    }
}

#[test]
fn addresses_that_others_can_reach() {
    for (address, expected) in [
        ("10.0.0.4", true),
        ("169.254.0.3", false),
        ("127.0.0.1", false),
        ("224.0.0.1", false),
        ("0.0.0.0", false),
        ("fd00::1", true),
        ("2001:db8::1", true),
        ("fe80::1", false),
        ("::1", false),
        ("ff02::1", false),
    ] {
        let cidr = Cidr { address: address.parse().unwrap(), prefix: 24 };
        assert_eq!(cidr.is_global_unicast(), expected, "{cidr}");
    }
}

#[test]
fn withheld_interfaces_stay_with_the_host() {
    // A bond with two members, a bridge with one, a virtual function below Azure's
    // paravirtual interface and one below another kind, and a NIC without a master.
    let mut host = facts(
        "2 eth0\n3 rail0 master 10\n4 rail1 master 10\n5 rail2 master 11\n\
         6 enP1s1 master 12\n7 ens4 master 13\n8 rail3\n\
         10 bond1\n11 br0\n12 eth1\n13 failover0\ndefault 2 0",
    );
    for (index, kind, bus) in
        [(10, Some("bond"), None), (11, Some("bridge"), None), (12, None, Some("vmbus"))]
    {
        let interface = host.interfaces.iter_mut().find(|it| it.index == index).unwrap();
        (interface.kind, interface.bus) = (kind.map(str::to_owned), bus.map(str::to_owned));
    }
    let member = |name: &str| Withheld::Member(name.to_owned());
    let expected = [
        (2, Withheld::Uplink),
        (3, member("bond1")),
        (4, member("bond1")),
        (5, member("br0")),
        (7, member("failover0")),
    ];
    assert_eq!(host.withheld(), expected.clone().into());

    // All interfaces below an uplink are withheld, even below a paravirtual one.
    host.default_routes[0].interface = 12;
    let withheld = host.withheld();
    assert_eq!((withheld.get(&6), withheld.get(&2)), (Some(&Withheld::Uplink), None));
}

/// A storage network on a VLAN of a NIC, and what is on top of others without being used.
#[test]
fn a_nic_below_an_interface_that_the_host_uses_stays() {
    let mut host = facts(
        "2 rail0\n3 rail1\n4 rail2\n5 rail3\n6 rail4\n\
         10 rail0.100 lower 2\n11 rail1.100 lower 3\n12 rail2.100 lower 4 master 20\n\
         13 rail3.100 lower 5\n14 veth0 lower 6\n15 bond0\n16 bond0.7 lower 15\n7 rail5\n\
         17 rail5.100 lower 7\n18 rail5.100.200 lower 17\n20 br0\n21 rail6\n22 tunnel lower 21",
    );
    for interface in host.interfaces.iter_mut().filter(|it| it.lower.is_some()) {
        let kind = match interface.name.as_str() {
            "veth0" => "veth",
            "tunnel" => "gretap",
            _ => "vlan",
        };
        interface.kind = Some(kind.to_owned());
        interface.is_up = Some(interface.name != "rail3.100");
        let address = if interface.name == "rail1.100" { "fe80::1" } else { "10.1.0.4" };
        let is_bare = interface.master.is_some() || interface.name == "rail5.100";
        let address = Cidr { address: address.parse().unwrap(), prefix: 24 };
        interface.addresses = [address].into_iter().filter(|_| !is_bare).collect();
    }
    for bond in host.interfaces.iter_mut().filter(|it| it.name == "bond0") {
        bond.kind = Some("bond".to_owned());
    }
    let below = |name: &str| Withheld::Below(name.to_owned());
    let expected = [
        (2, below("rail0.100")),
        (4, below("rail2.100")),
        (7, below("rail5.100.200")),
        (21, below("tunnel")),
        (17, below("rail5.100.200")),
        (12, Withheld::Member("br0".to_owned())),
    ];
    assert_eq!(host.withheld(), expected.clone().into());

    // The first VLAN without an address on the host, in a pod.
    for interface in host.interfaces.iter_mut().filter(|it| it.name == "rail0.100") {
        (interface.index, interface.is_up) = (0, None);
        interface.addresses.clear();
    }
    assert_eq!(host.withheld().get(&2), None);
    host.in_pods.insert("rail0.100".to_owned());
    assert_eq!(host.withheld(), expected.into());

    // The operator knows better.
    host.choice.pods = vec!["rail*".parse().unwrap()];
    assert_eq!(host.withheld(), [(12, Withheld::Member("br0".to_owned()))].into());
}
