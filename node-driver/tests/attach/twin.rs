//! A host is the same before and after any pod: its whole network state as text, while pods change at random
//! what root in them can change. `$DRANET_TWIN_PODS` (200) pods, seeded by `$DRANET_TWIN_SEED` (7).

use crate::dice::Dice;
use crate::stage::Stage;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![("a_host_is_the_same_after_any_pod", a_host_is_the_same_after_any_pod)]
}

/// The host: what an administrator can set on an interface. Rules and routes last, on which addresses have an
/// effect.
const HOST: [&str; 24] = [
    "link add rail1 address 02:00:00:00:aa:01 type veth peer name far1",
    "link set far up",
    "link set far1 up",
    "link set rail1 up",
    "addr add 10.10.0.10/16 dev rail1",
    "link set rail0 alias storage",
    "link set rail0 txqueuelen 777",
    "link property add dev rail0 altname storage0",
    "link set rail0 up",
    "token set ::7 dev rail0",
    "addr add fd09::21/64 dev rail0 nodad",
    "addr add fd09::22/64 dev rail0 nodad metric 77",
    "addr add fd09::23/64 dev rail0 nodad preferred_lft 0",
    "addr add 10.9.0.10/16 dev rail0 metric 55",
    "addr add 10.9.0.11/16 dev rail0",
    "addr add 10.8.0.1 peer 10.8.0.2/32 dev rail0",
    "addr add 10.7.0.1/24 dev rail0 noprefixroute",
    "neigh add 10.9.0.77 lladdr 02:00:00:00:cc:01 dev rail0 nud permanent",
    "route add 10.70.0.0/16 via 10.9.0.254 dev rail0 metric 20 mtu lock 1400",
    "route add 10.71.0.0/16 via 10.9.0.254 dev rail0 tos 0x10",
    "route add 172.20.0.0/16 nexthop via 10.9.0.1 dev rail0 weight 2 nexthop via 10.10.0.1 dev rail1",
    "route add default via 10.9.0.254 dev rail0 table 100",
    "rule add not from 10.9.0.10 table 100 priority 100",
    "rule add from 10.9.0.11 table 100 priority 101",
];

/// Settings in `/proc/sys/net` that the host's administrator has changed.
const SET: [&str; 9] = [
    "ipv4/conf/rail0/rp_filter=2",
    "ipv4/conf/rail0/arp_ignore=1",
    "ipv4/neigh/rail0/base_reachable_time_ms=15000",
    "ipv4/neigh/rail0/unres_qlen_bytes=123456",
    "ipv6/neigh/rail0/mcast_solicit=5",
    "ipv6/conf/rail0/dad_transmits=2",
    "ipv6/conf/rail0/hop_limit=33",
    "ipv6/conf/rail0/router_solicitations=7",
    "ipv6/conf/rail0/stable_secret=2001:db8::7",
];

/// All of the state. Temporary and private values of the kernel are left out, and what follows later, as whether
/// there is a carrier. Of devlink and RDMA, what this kernel has.
const LOOK: &str =
    "(ip -o link; ip -d link show rail0) | sed 's/NO-CARRIER,//; s/ state [A-Z]* / /'
ip -o addr | sed s/.tentative//; ip token show dev rail0
ip rule; ip -6 rule; ip route show table all | grep -v fe80: | sort
ip neigh show nud permanent
for d in rail0 rail1; do
  tc qdisc show dev $d; tc class show dev $d
  tc filter show dev $d ingress 2>&1; tc filter show dev $d egress 2>&1
done
for o in '' -k -c -l -g -a -x -n -P --show-priv-flags --show-fec --show-eee -T -m; do
  ethtool $o rail0 2>&1 | grep -v 'Link detected'
done
devlink dev param show 2>&1; devlink port show 2>&1; rdma dev 2>&1; rdma link 2>&1; rdma system 2>&1
grep -s '' /proc/sys/net/ipv[46]/conf/rail[01]/* /proc/sys/net/ipv[46]/neigh/rail[01]/*
true";

/// What root in a pod does. Some of it fails.
const CHANGES: [&str; 46] = [
    "ip link set net1 down",
    "ip link set net1 name other0; ip link set other0 up",
    "ip link set net1 mtu 1300",
    "ip link set net1 address 02:00:00:00:bb:01",
    "ip link set net1 alias mine",
    "ip link set net1 txqueuelen 5",
    "ip link set net1 group 9",
    "ip link set net1 promisc on allmulticast on",
    "ip link set net1 arp off",
    "ip link set net1 multicast off",
    "ip link set net1 mode dormant",
    "ip link set net1 gso_max_size 20000 gro_max_size 20000",
    "ip link property add dev net1 altname mine0",
    "ip link property del dev net1 altname storage0",
    "ip link add br0 type bridge; ip link set net1 master br0",
    "ip link add link net1 name net1.7 type vlan id 7",
    "ip link add link net1 name child type macvlan",
    "ip addr flush dev net1",
    "ip addr add 10.99.0.1/24 dev net1",
    "ip addr add fd99::1/64 dev net1",
    "ip route flush dev net1",
    "ip route add 10.98.0.0/16 dev net1",
    "ip rule add from 10.9.0.10 table 9 priority 9",
    "ip neigh flush dev net1 nud permanent",
    "ip neigh add 10.9.0.78 lladdr 02:00:00:00:cc:02 dev net1 nud permanent",
    "tc qdisc add dev net1 root netem delay 1ms",
    "tc qdisc add dev net1 clsact",
    "tc qdisc add dev net1 root handle 1: tbf rate 1mbit burst 10k latency 50ms",
    "tc qdisc add dev net1 ingress; tc filter add dev net1 ingress matchall action drop",
    "ethtool -K net1 gro off tso off tx off",
    "ethtool -K net1 rx-gro-list on tx-nocache-copy on",
    "ethtool -L net1 combined 1",
    "ethtool -L net1 rx 2 tx 2",
    "ethtool -G net1 rx 256",
    "ethtool -C net1 rx-usecs 99",
    "ethtool -A net1 rx off tx off",
    "ethtool -X net1 equal 1",
    "ethtool -s net1 speed 1000 duplex full autoneg off",
    "ip link set net1 vf 0 mac 02:00:00:00:dd:01 vlan 7",
    "ip token set ::9 dev net1; echo 1 > /proc/sys/net/ipv6/conf/net1/keep_addr_on_down",
    "devlink port param set net1 name x value 1 cmode runtime; rdma dev set net1 netns 1",
    "echo 1 > /proc/sys/net/ipv4/conf/net1/forwarding",
    "echo 1 > /proc/sys/net/ipv6/conf/net1/disable_ipv6",
    "echo 2001:db8::9 > /proc/sys/net/ipv6/conf/net1/stable_secret",
    "echo 9 > /proc/sys/net/ipv6/neigh/net1/mcast_solicit",
    "echo 2 > /proc/sys/net/ipv6/conf/net1/accept_ra; echo 3 > /proc/sys/net/ipv6/conf/net1/use_tempaddr",
];

/// Until when the kernel has done what follows later.
const SOON: Duration = Duration::from_secs(10);

fn a_host_is_the_same_after_any_pod() {
    let (pods, seed) = (number("DRANET_TWIN_PODS", 200), number("DRANET_TWIN_SEED", 7));
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let mut stage = Stage::with(&[]);
    for setting in SET {
        let (file, value) = setting.split_once('=').unwrap();
        shell(&script, &format!("echo {value} > /proc/sys/net/{file}"), |line| stage.on_host(line));
    }
    for line in HOST {
        stage.on_host(&format!("ip {line}"));
    }
    let look = |stage: &Stage| shell(&script, LOOK, |line| stage.on_host(line));
    let before = look(&stage);
    let mut dice = Dice(seed);
    let mut all = CHANGES;
    for pod in 0..pods {
        stage.new_pod();
        let mut attached = stage.attach(stage.plan(json!({"interface": {"name": "net1"}})));
        dice.shuffle(&mut all);
        let changes = &all[..=dice.below(7)];
        let text = changes.join("\n") + "\ntrue\n";
        shell(&script, &text, |line| stage.in_pod(line));
        if dice.below(4) == 0 {
            stage.again(&mut attached);
        }
        let unrestored = stage.try_take_back(&attached);
        assert_eq!(unrestored, Vec::<String>::new(), "pod {pod} of seed {seed}: {changes:?}");
        let mut after = look(&stage);
        // The kernel adds routes of IPv6 when it knows that there is a carrier.
        let begin = Instant::now();
        while after != before && begin.elapsed() < SOON {
            after = look(&stage);
        }
        let differ: Vec<_> =
            before.lines().zip(after.lines()).filter(|(was, is)| was != is).collect();
        assert!(
            differ.is_empty() && before.lines().count() == after.lines().count(),
            "pod {pod} of seed {seed}: {changes:#?}: {differ:#?}"
        );
    }
}

/// Runs a script, and returns its output.
fn shell(script: &Path, text: &str, run: impl Fn(&str) -> String) -> String {
    fs::write(script, text).unwrap();
    run(&format!("sh {}", script.display()))
}

#[expect(clippy::disallowed_methods, reason = "a test has no arguments")]
fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}
