//! What a NIC's network, and what the host has set up on it, does to a pod's traffic; and what a pod has set
//! up itself when another of its containers starts.

use crate::stage::{RAIL, Stage};
use serde_json::json;

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![
        ("routers_on_the_nics_network_are_not_heard", routers_on_the_nics_network_are_not_heard),
        ("routes_of_the_host_do_not_take_the_pods_traffic", routes_do_not_take_the_pods_traffic),
        ("what_a_pod_changed_is_left_alone", what_a_pod_changed_is_left_alone),
        ("rules_are_carried_whole_or_named", rules_are_carried_whole_or_named),
        ("addresses_keep_their_order_and_properties", addresses_keep_their_order_and_properties),
        ("a_route_keeps_its_other_next_hops", a_route_keeps_its_other_next_hops),
    ]
}

fn default_claim() -> serde_json::Value {
    json!({"interface": {"name": RAIL}})
}

fn routers_on_the_nics_network_are_not_heard() {
    let up = ["addr add fd09::10/64 dev rail0 nodad", "link set rail0 up", "link set far up"];
    let quiet = [
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("forwarding", "0"),
        ("use_tempaddr", "0"),
        ("proxy_ndp", "0"),
        ("accept_redirects", "0"),
    ];
    for (parameters, expected) in [
        (default_claim(), &quiet[..]),
        (
            json!({"interface": {"name": RAIL, "type": "macvlan", "addresses": ["fd09::7/64"]}}),
            &quiet,
        ),
        (
            json!({"interface": {"name": RAIL, "acceptRouterAdvertisements": true}}),
            &[("accept_ra", "1"), ("autoconf", "1"), ("use_tempaddr", "0")],
        ),
    ] {
        let stage = Stage::with(&up);
        let attached = stage.attach(stage.plan(parameters.clone()));
        for (setting, value) in expected {
            let told = stage.in_pod(&format!("cat /proc/sys/net/ipv6/conf/rail0/{setting}"));
            assert_eq!(told.trim(), *value, "{setting} with {parameters}");
        }
        stage.take_back(&attached);
    }
}

fn routes_do_not_take_the_pods_traffic() {
    let stage = Stage::with(&[
        "addr add 10.9.0.10/16 dev rail0",
        "link set rail0 up",
        "link set far up",
        "route add 0.0.0.0/1 via 10.9.0.1 dev rail0",
        "route add 128.0.0.0/1 via 10.9.0.1 dev rail0",
    ]);
    for line in [
        "link add eth0 type veth peer name away",
        "link set eth0 up",
        "link set away up",
        "addr add 10.244.0.7/24 dev eth0",
        "route add default via 10.244.0.1",
    ] {
        stage.in_pod(&format!("ip {line}"));
    }
    // A NIC without a default route would be the host's uplink by these.
    let attached = stage.attach(stage.plan(default_claim()));
    for (line, expected) in [
        ("ip route get 8.8.8.8", "via 10.244.0.1 dev eth0"),
        ("ip route get 192.0.2.9", "via 10.244.0.1 dev eth0"),
        ("ip route get 192.0.2.9 from 10.9.0.10", "via 10.9.0.1 dev rail0"),
        ("ip route get 10.9.0.44 from 10.9.0.10", "dev rail0"),
    ] {
        let told = stage.in_pod(line);
        assert!(told.contains(expected), "`{line}`: {told}");
    }
    stage.take_back(&attached);
    let told = stage.on_host("ip route");
    assert!(told.contains("0.0.0.0/1 via") && told.contains("128.0.0.0/1 via"), "{told}");
}

/// As plugins for bonds and bridges do.
fn what_a_pod_changed_is_left_alone() {
    for kind in ["bridge"] {
        let stage = Stage::with(&[
            "addr add 10.9.0.10/16 dev rail0",
            "link set rail0 up",
            "link set far up",
        ]);
        let before = stage.on_host("ip addr show dev rail0");
        let mut attached = stage.attach(stage.plan(default_claim()));
        for line in [
            format!("link add up0 type {kind}"),
            "addr flush dev rail0".to_owned(),
            "link set rail0 down".to_owned(),
            "link set rail0 master up0".to_owned(),
            "link set rail0 up".to_owned(),
            "link set up0 up".to_owned(),
            "addr add 10.9.0.10/16 dev up0".to_owned(),
        ] {
            stage.in_pod(&format!("ip {line}"));
        }
        let looks = ["ip -o addr", "ip rule", "ip route show table all"];
        let set_up = looks.map(|line| stage.in_pod(line));
        stage.again(&mut attached);
        assert_eq!(looks.map(|line| stage.in_pod(line)), set_up, "{kind}");
        stage.take_back(&attached);
        assert_eq!(stage.on_host("ip addr show dev rail0"), before, "{kind}");
    }
}

fn rules_are_carried_whole_or_named() {
    let table = [
        "route add 10.77.0.0/16 dev rail0 table 100",
        "rule add from 10.9.0.11 table 100 priority 99",
    ];
    for (rule, word) in [
        ("not from 10.9.0.10 table 100 priority 100", "not"),
        ("from 10.9.0.10 table 100 priority 100 suppress_prefixlength 0", "suppress_prefixlength"),
        ("from 10.9.0.10 table 100 priority 100 suppress_ifgroup 7", "suppress_ifgroup"),
        ("from 10.9.0.10 tos 0x10 table 100 priority 100", "tos"),
        ("from 10.9.0.10 fwmark 7 table 100 priority 100", "fwmark"),
        ("from 10.9.0.10 fwmark 0/0xff table 100 priority 100", "fwmark"),
        ("from 10.9.0.10 iif lo table 100 priority 100", "iif"),
        ("from 10.9.0.10 ipproto tcp dport 80 table 100 priority 100", "dport"),
        ("from all table 100 priority 100", "from all"),
    ] {
        let rule_line = format!("rule add {rule}");
        let mut lines =
            vec!["addr add 10.9.0.10/16 dev rail0", "link set rail0 up", "link set far up"];
        lines.extend(table);
        lines.push(&rule_line);
        let stage = Stage::with(&lines);
        let plan = stage.plan(default_claim());
        let left_out = plan.links().next().unwrap().host.left_out.clone();
        let is_named = |text: &String| text.contains("rule 100 ") && text.contains(word);
        assert!(matches!(&left_out[..], [only] if is_named(only)), "{rule}: {left_out:?}");
        let attached = stage.attach(plan);
        let inside = stage.in_pod("ip rule");
        assert!(inside.contains("99:\tfrom 10.9.0.11 lookup 100"), "{rule}: {inside}");
        assert!(!inside.contains("100:"), "{rule}: {inside}");
        stage.take_back(&attached);
    }
    let stage = Stage::with(&[
        "addr add 10.9.0.10/16 dev rail0",
        "link set rail0 up",
        "link set far up",
        "rule add from 10.9.0.10 table main priority 50",
        "route add 10.80.0.0/16 via 10.9.0.1 tos 0x10 mtu lock 1400",
    ]);
    let _attached = stage.attach(stage.plan(default_claim()));
    let inside = stage.in_pod("ip rule");
    assert!(inside.contains("50:\tfrom 10.9.0.10 lookup main"), "{inside}");
    let inside = stage.in_pod("ip route show 10.80.0.0/16");
    assert!(inside.contains("tos 0x10") && inside.contains("lock 1400"), "{inside}");
}

fn addresses_keep_their_order_and_properties() {
    let stage = Stage::with(&[
        "link set rail0 up",
        "link set far up",
        "addr add fd09::21/64 dev rail0 nodad",
        "addr add fd09::22/64 dev rail0 nodad metric 77",
        "addr add fd09::23/64 dev rail0 nodad preferred_lft 0",
        "addr add 10.9.0.10/16 dev rail0 metric 55",
        "addr add 10.9.0.11/16 dev rail0",
        "addr add 10.8.0.1 peer 10.8.0.2/32 dev rail0",
        "addr add 10.7.0.1/24 dev rail0 noprefixroute preferred_lft 0",
    ]);
    let look = "ip -o addr show dev rail0 scope global";
    let before = stage.on_host(look);
    let mut attached = stage.attach(stage.plan(default_claim()));
    stage.once_more(&mut attached);
    let inside = stage.in_pod(look).replace(" nodad", "");
    let numbered = |text: &str| {
        let lines =
            text.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(numbered(&inside), numbered(&before.replace(" nodad", "")));
    stage.take_back(&attached);
    assert_eq!(numbered(&stage.on_host(look)), numbered(&before));
}

fn a_route_keeps_its_other_next_hops() {
    let stage = Stage::with(&[
        "link add rail1 address 02:00:00:00:aa:01 type veth peer name far1",
        "link add rail2 address 02:00:00:00:aa:02 type veth peer name far2",
        "addr add 10.9.0.10/16 dev rail0",
        "addr add 10.10.0.10/16 dev rail1",
        "addr add 10.11.0.10/16 dev rail2",
        "link set rail0 up",
        "link set far up",
        "link set rail1 up",
        "link set far1 up",
        "link set rail2 up",
        "link set far2 up",
        "route add 172.20.0.0/16 nexthop via 10.9.0.1 dev rail0 weight 2 nexthop via 10.10.0.1 dev rail1 nexthop via 10.11.0.1 dev rail2",
    ]);
    let look = || stage.on_host("ip route show 172.20.0.0/16");
    let before = look();
    let one = stage.attach(stage.plan(default_claim()));
    let now = look();
    assert!(!now.contains("rail0") && now.contains("rail1") && now.contains("rail2"), "{now}");
    let inside = stage.in_pod("ip route show 172.20.0.0/16");
    assert!(inside.contains("via 10.9.0.1 dev rail0"), "{inside}");
    // Both of a claim leave and come back together.
    stage.take_back(&one);
    assert_eq!(look(), before);
    let both = stage.attach(stage.plan_of(&[RAIL, "rail1"], json!({})));
    let now = look();
    assert!(now.contains("via 10.11.0.1 dev rail2") && !now.contains("rail1"), "{now}");
    stage.take_back(&both);
    assert_eq!(look(), before);
}
