//! What a pod's NICs inherit from the host, and several of them on one network.

use crate::stage::{RAIL, Stage};
use node_driver::model::plan::Companion;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![
        (
            "inherited_addresses_of_one_network_are_used_by_their_nics",
            inherited_addresses_of_one_network_are_used_by_their_nics,
        ),
        (
            "nics_of_two_claims_on_one_network_have_a_table_each",
            nics_of_two_claims_on_one_network_have_a_table_each,
        ),
        (
            "a_host_that_is_set_up_keeps_its_tables_and_settings_in_the_pod",
            a_host_that_is_set_up_keeps_its_tables_and_settings_in_the_pod,
        ),
        ("inherited_routes_keep_their_metric_and_mtu", inherited_routes_keep_their_metric_and_mtu),
        (
            "an_ipv6_address_enables_ipv6_on_its_interface",
            an_ipv6_address_enables_ipv6_on_its_interface,
        ),
        ("neighbours_learn_who_has_an_address", neighbours_learn_who_has_an_address),
        ("traffic_control_of_the_host_is_known", traffic_control_of_the_host_is_known),
        ("routes_by_nexthop_objects_come_back", routes_by_nexthop_objects_come_back),
    ]
}

const OTHER: &str = "rail1";

/// As routing daemons write them. The kernel deletes the objects when the NIC leaves.
fn routes_by_nexthop_objects_come_back() {
    for mode in ["1", "0"] {
        let stage = Stage::with(&[
            "addr add 10.7.0.1/24 dev rail0",
            "link set rail0 up",
            "link set far up",
            "nexthop add id 7 via 10.7.0.254 dev rail0",
            "route add 10.70.0.0/16 nhid 7 metric 20",
        ]);
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("mode");
        fs::write(&script, format!("echo {mode} > /proc/sys/net/ipv4/nexthop_compat_mode"))
            .unwrap();
        stage.on_host(&format!("sh {}", script.display()));
        let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
        let inside = stage.in_pod("ip route show 10.70.0.0/16");
        assert!(inside.contains("via 10.7.0.254 dev rail0"), "{mode}: {inside}");
        stage.take_back(&attached);
        let told = stage.on_host("ip route show 10.70.0.0/16");
        assert!(told.contains("via 10.7.0.254 dev rail0 metric 20"), "{mode}: {told}");
    }
}

/// Two NICs on one network, by a bridge of the host.
const PAIR: [&str; 10] = [
    "link add rail1 address 02:00:00:00:aa:01 mtu 9000 type veth peer name far1",
    "link add br0 type bridge",
    "link set far master br0",
    "link set far1 master br0",
    "link set br0 up",
    "link set far up",
    "link set far1 up",
    "addr add 10.9.0.10/16 dev rail0",
    "addr add 10.9.0.11/16 dev rail1",
    "addr add 10.9.0.1/16 dev br0",
];
const UP: [&str; 2] = ["link set rail0 up", "link set rail1 up"];

fn pair(more: &[&str]) -> Stage {
    Stage::with(&[&PAIR[..], &UP, more].concat())
}

fn setting(stage: &Stage, link: &str, name: &str) -> String {
    let text = stage.in_pod(&format!("cat /proc/sys/net/ipv4/conf/{link}/{name}"));
    text.trim().to_owned()
}

/// Each address is routed by its own NIC, and only that one answers for it.
fn is_apart(stage: &Stage) {
    for (address, link) in [("10.9.0.10", RAIL), ("10.9.0.11", OTHER)] {
        let told = stage.in_pod(&format!("ip route get 10.9.0.1 from {address}"));
        assert!(told.contains(&format!("dev {link} ")), "{address}: {told}");
        assert_eq!(setting(stage, link, "arp_ignore"), "1");
        assert_eq!(setting(stage, link, "arp_announce"), "2");
    }
}

fn inherited_addresses_of_one_network_are_used_by_their_nics() {
    let stage = pair(&[]);
    let show = "ip -o addr show scope global";
    let before = stage.on_host(show);
    let mut attached = stage.attach(stage.plan_of(&[RAIL, OTHER], json!({})));
    is_apart(&stage);
    // Another container of the pod adds nothing.
    let rules = stage.in_pod("ip rule");
    stage.again(&mut attached);
    assert_eq!(stage.in_pod("ip rule"), rules);
    stage.take_back(&attached);
    assert_eq!(stage.on_host(show), before);
    for link in [RAIL, OTHER] {
        let path = format!("cat /proc/sys/net/ipv4/conf/{link}/arp_ignore");
        assert_eq!(stage.on_host(&path).trim(), "0");
    }
}

fn nics_of_two_claims_on_one_network_have_a_table_each() {
    let stage = pair(&[]);
    let [mut one, mut other] = [RAIL, OTHER].map(|link| stage.plan_of(&[link], json!({})));
    let beside = [Companion::from(&other), Companion::from(&one)];
    [one.wiring.beside, other.wiring.beside] = beside.map(|claim| vec![claim]);
    let attached = [one, other].map(|plan| stage.attach(plan));
    is_apart(&stage);
    for attached in &attached {
        stage.take_back(attached);
    }
}

fn a_host_that_is_set_up_keeps_its_tables_and_settings_in_the_pod() {
    let stage = pair(&[
        "route add 10.9.0.0/16 dev rail0 table 100",
        "route add 10.9.0.0/16 dev rail1 table 101",
        "rule add from 10.9.0.10 table 100 priority 100",
        "rule add from 10.9.0.11 table 101 priority 101",
    ]);
    stage
        .host
        .run(async |_| {
            for link in [RAIL, OTHER] {
                for (name, value) in [("arp_ignore", "2"), ("rp_filter", "2")] {
                    fs::write(format!("/proc/sys/net/ipv4/conf/{link}/{name}"), value).unwrap();
                }
            }
            Ok(())
        })
        .unwrap();
    let attached = stage.attach(stage.plan_of(&[RAIL, OTHER], json!({})));
    let rules = stage.in_pod("ip rule");
    assert_eq!(rules.matches("from 10.9.0.1").count(), 2, "{rules}");
    assert!(rules.contains("from 10.9.0.11 lookup 101"), "{rules}");
    for link in [RAIL, OTHER] {
        assert_eq!(setting(&stage, link, "arp_ignore"), "2");
        assert_eq!(setting(&stage, link, "arp_announce"), "2");
        assert_eq!(setting(&stage, link, "rp_filter"), "2");
    }
    stage.take_back(&attached);
    assert_eq!(stage.on_host("cat /proc/sys/net/ipv4/conf/rail0/arp_ignore").trim(), "2");
}

fn inherited_routes_keep_their_metric_and_mtu() {
    let stage = Stage::with(&[
        "addr add 10.7.0.1/24 dev rail0",
        "link set rail0 up",
        "link set far up",
        "route add 10.70.0.0/16 via 10.7.0.254 dev rail0 metric 50 mtu 4000",
    ]);
    let attached = stage.attach(stage.plan(json!({"interface": {"name": "net1"}})));
    let routes = stage.in_pod("ip route show 10.70.0.0/16");
    assert!(routes.contains("metric 50 mtu 4000"), "{routes}");
    stage.take_back(&attached);
    assert!(stage.on_host("ip route show 10.70.0.0/16").contains("metric 50 mtu 4000"));
}

/// Networks of pods often have no IPv6.
fn an_ipv6_address_enables_ipv6_on_its_interface() {
    let stage = Stage::with(&["addr add fd00:9::7/64 dev rail0 nodad", "link set rail0 up"]);
    stage
        .pod
        .run(async |_| {
            for scope in ["all", "default"] {
                fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1").unwrap();
            }
            Ok(())
        })
        .unwrap();
    let attached = stage.attach(stage.plan(json!({"interface": {"name": "net1"}})));
    let told = stage.in_pod("ip -6 addr show dev net1");
    assert!(told.contains("fd00:9::7/64"), "{told}");
    stage.take_back(&attached);
}

/// An address of a pool goes from one NIC to another.
fn neighbours_learn_who_has_an_address() {
    let stage = Stage::with(&[
        "link set far up",
        "addr add 10.9.0.1/16 dev far",
        "neigh add 10.9.0.2 lladdr 02:00:00:00:99:99 dev far nud stale",
    ]);
    let parameters = json!({"interface": {"name": "net1", "addresses": ["10.9.0.2/16"]}});
    let attached = stage.attach(stage.plan(parameters));
    let told = stage.on_host("ip neigh show 10.9.0.2 dev far");
    assert!(told.contains("lladdr 02:00:00:00:aa:00"), "{told}");
    stage.take_back(&attached);
}

/// The kernel drops it when the interface moves.
fn traffic_control_of_the_host_is_known() {
    let stage = Stage::with(&["link set rail0 up"]);
    let disciplines = || {
        let plan = stage.plan(json!({}));
        plan.devices[0].link.as_ref().unwrap().host.disciplines.clone()
    };
    assert!(disciplines().is_empty());
    stage.on_host("tc qdisc add dev rail0 clsact");
    assert_eq!(disciplines(), BTreeSet::from(["clsact".to_owned()]));
}
