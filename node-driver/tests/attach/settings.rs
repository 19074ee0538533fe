//! Settings of a pod's configuration, read back from the kernel.

use crate::stage::{RAIL, Stage, link, set};
use node_driver::kernel::attach::netns::NetNs;
use node_driver::kernel::attach::virtual_function_settings;
use process::chain::Chain;
use publication::cloud::CloudNic;
use rtnetlink::packet_route::link::LinkAttribute;
use serde_json::json;
use std::mem::discriminant;

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![
        (
            "a_rails_rules_routes_and_neighbours_are_in_the_pod",
            a_rails_rules_routes_and_neighbours_are_in_the_pod,
        ),
        (
            "azures_policy_routes_are_applied_in_the_pod",
            azures_policy_routes_are_applied_in_the_pod,
        ),
        (
            "segment_sizes_are_set_in_the_pod_and_then_restored",
            segment_sizes_are_set_in_the_pod_and_then_restored,
        ),
        (
            "the_kernel_reads_guids_of_virtual_functions",
            the_kernel_reads_guids_of_virtual_functions,
        ),
        (
            "an_interface_that_has_become_the_uplink_stays_with_the_host",
            an_interface_that_has_become_the_uplink_stays_with_the_host,
        ),
    ]
}

/// A rail with a routing table per address family, as on hosts with several rails.
const TABLES: [&str; 11] = [
    "addr add 10.7.0.1/24 dev rail0",
    "addr add fd07::1/64 dev rail0 nodad",
    "link set rail0 up",
    "link set far up",
    "route add 10.70.0.0/16 via 10.7.0.254 dev rail0",
    "route add 10.7.0.0/24 dev rail0 table 700",
    "route add default via 10.7.0.254 dev rail0 table 700",
    "-6 route add default via fd07::fe dev rail0 table 700",
    "rule add from 10.7.0.1 table 700 priority 1700",
    "-6 rule add from fd07::1 table 700 priority 1701",
    "neigh add 10.7.0.77 lladdr 02:00:00:00:cc:01 dev rail0 nud permanent",
];

/// All state of the host's interface that an administrator can set.
const STATE: [&str; 7] = [
    "ip -o addr show dev rail0 scope global",
    "ip route show table all dev rail0 proto boot",
    "ip -6 route show table all dev rail0 proto boot",
    "ip rule",
    "ip -6 rule",
    "ip neigh show dev rail0 nud permanent",
    "ip link show dev rail0",
];

fn state(stage: &Stage) -> String {
    // The index must stay the same too.
    STATE.map(|line| stage.on_host(line)).concat()
}

fn a_rails_rules_routes_and_neighbours_are_in_the_pod() {
    let stage = Stage::with(&TABLES);
    let before = state(&stage);
    let mut attached = stage.attach(stage.plan(json!({"interface": {"name": "net1"}})));
    // Another container of the pod adds nothing.
    stage.again(&mut attached);
    for (line, expected) in [
        ("ip rule", "1700:\tfrom 10.7.0.1 lookup 700\n"),
        ("ip -6 rule", "1701:\tfrom fd07::1 lookup 700\n"),
        ("ip route show table 700", "default via 10.7.0.254 dev net1 proto static \n"),
        ("ip route show table 700", "10.7.0.0/24 dev net1 proto static scope link \n"),
        ("ip -6 route show table 700", "default via fd07::fe dev net1 proto static "),
        ("ip route show table main", "10.70.0.0/16 via 10.7.0.254 dev net1 proto static \n"),
        ("ip neigh show dev net1", "10.7.0.77 lladdr 02:00:00:00:cc:01 PERMANENT"),
        // Routed by the rule and its table, not by the main table.
        ("ip route get 192.0.2.9 from 10.7.0.1", "via 10.7.0.254 dev net1 table 700"),
        ("ip route get 2001:db8::9 from fd07::1", "via fd07::fe dev net1 table 700"),
    ] {
        let told = stage.in_pod(line);
        let count = told.matches(expected).count();
        assert_eq!(count, 1, "`{line}` says `{expected}` {count} times:\n{told}");
    }
    stage.take_back(&attached);
    assert_eq!(state(&stage), before);
}

/// Azure's metadata has the network of each interface; the second interface has table
/// 101. The IPv6 router is the one that the host has learned.
fn azures_policy_routes_are_applied_in_the_pod() {
    let nic = |hardware_addr: &str, subnet: &str| CloudNic {
        hardware_addr: hardware_addr.parse().unwrap(),
        subnet: Some(subnet.parse().unwrap()),
        ipv6: Some("fd07::4".parse().unwrap()),
    };
    let nics = [nic("02:00:00:00:ff:ff", "10.6.0.0/24"), nic("02:00:00:00:aa:00", "10.7.0.0/24")];
    let lines = [
        "addr add 10.7.0.4/24 dev rail0",
        "addr add fd07::4/64 dev rail0 nodad",
        "link set rail0 up",
        "link set far up",
        "-6 route add default via fe80::1 dev rail0 proto ra metric 1024",
        // A separate uplink for the host; otherwise the rail would be its uplink.
        "link add way address 02:00:00:00:aa:10 type veth peer name away",
        "link set away up",
        "link set way up",
        "addr add fd09::1/64 dev way nodad",
        "-6 route add default via fd09::fe dev way metric 100",
    ];
    let ways = [
        ("ip route get 192.0.2.9 from 10.7.0.4", "via 10.7.0.1 dev net1 table 101"),
        ("ip -6 route get 2001:db8::9 from fd07::4", "via fe80::1 dev net1 table 101"),
    ];
    let stage = Stage::with(&lines);
    let before = state(&stage);
    let parameters = json!({"interface": {"name": "net1"}});
    let mut attached = stage.attach(stage.plan_in(&nics, parameters.clone()));
    stage.again(&mut attached);
    for (line, expected) in ways {
        let told = stage.in_pod(line);
        assert!(told.contains(expected), "`{line}`: {told}");
    }
    for (line, expected) in [("ip rule", "from 10.7.0.0/24 lookup 101"), ("ip -6 rule", "fd07::4")]
    {
        assert_eq!(stage.in_pod(line).matches(expected).count(), 1, "`{line}`");
    }
    stage.take_back(&attached);
    assert_eq!(state(&stage), before);

    // The host's own rules and routes are inherited instead.
    let own = [
        "route add default via 10.7.0.253 dev rail0 table 55",
        "rule add from 10.7.0.4 table 55 priority 1500",
    ];
    let stage = Stage::with(&[&lines[..], &own].concat());
    let attached = stage.attach(stage.plan_in(&nics, parameters));
    let told = stage.in_pod(ways[0].0);
    assert!(told.contains("via 10.7.0.253 dev net1 table 55"), "{told}");
    assert!(!stage.in_pod("ip rule").contains("101"));
    stage.take_back(&attached);
}

/// Segment sizes in the order of the fields: GSO, GRO, then the same for IPv4.
type Sizes = [u32; 4];

fn attributes([sent, received, sent_v4, received_v4]: Sizes) -> [LinkAttribute; 4] {
    [
        LinkAttribute::GsoMaxSize(sent),
        LinkAttribute::GroMaxSize(received),
        LinkAttribute::GsoIpv4MaxSize(sent_v4),
        LinkAttribute::GroIpv4MaxSize(received_v4),
    ]
}

fn have(namespace: &NetNs, name: &str, sizes: Sizes, whose: &str) {
    let (_, found) = link(namespace, name);
    let expected = attributes(sizes);
    let is_same = |a: &LinkAttribute, b: &LinkAttribute| discriminant(a) == discriminant(b);
    let of = |it: &LinkAttribute| found.iter().find(|found| is_same(found, it)).cloned();
    assert_eq!(expected.each_ref().map(of), expected.map(Some), "{whose}");
}

/// The kernel changes the sizes for IPv4 together with the general ones if those are
/// small (`netif_set_gso_max_size`, `net/core/dev.c`).
fn segment_sizes_are_set_in_the_pod_and_then_restored() {
    const LEGACY: u32 = 65536;
    for (host, pod) in [
        ([LEGACY; 4], [131_072, 120_000, 60_000, 61_000]),
        ([LEGACY; 4], [40_000, 41_000, LEGACY, LEGACY]),
        ([40_000, 41_000, LEGACY, LEGACY], [131_072, 131_072, LEGACY, LEGACY]),
        ([40_000, 41_000, 42_000, 43_000], [50_000, 51_000, 42_000, 43_000]),
    ] {
        let stage = Stage::with(&["link set rail0 up", "link set far up"]);
        for size in attributes(host) {
            set(&stage.host, RAIL, size);
        }
        have(&stage.host, RAIL, host, "the host's before");
        let [sent, received, sent_v4, received_v4] = pod;
        let attached = stage.attach(stage.plan(json!({"interface": {
            "name": "net1", "addresses": ["192.168.7.5/24"], "gsoMaxSize": sent,
            "groMaxSize": received, "gsoIPv4MaxSize": sent_v4, "groIPv4MaxSize": received_v4,
        }})));
        have(&stage.pod, "net1", pod, "the pod's");
        stage.take_back(&attached);
        have(&stage.host, RAIL, host, "the host's again");
    }
}

/// No interface here supports GUIDs. The kernel reports that only after it has parsed the
/// message: a malformed message would be invalid or out of range.
fn the_kernel_reads_guids_of_virtual_functions() {
    let stage = Stage::with(&[]);
    let error = virtual_function_settings::set_guids(&stage.host, RAIL, &[0x0e42_a103_0065_4c3e])
        .unwrap_err();
    let text = Chain(&error).to_string();
    assert!(text.contains("failed to set the node GUID of virtual function 0"), "{text}");
    assert!(text.contains("Operation not supported"), "{text}");
}

/// The default route was absent for a moment, just when the claim was prepared.
fn an_interface_that_has_become_the_uplink_stays_with_the_host() {
    let stage = Stage::with(&["addr add 10.9.0.2/24 dev rail0", "link set rail0 up"]);
    let plan = stage.plan(json!({}));
    stage.on_host("ip route add default via 10.9.0.1 dev rail0");
    let refusal = stage.refusal(&plan);
    assert!(
        refusal.contains("the node's own traffic now goes through interface `rail0`"),
        "{refusal}"
    );
    assert!(stage.on_host("ip -br link show rail0").starts_with(RAIL));
    stage.on_host("ip route del default");
    stage.attach(plan);
}
