//! What the kernel reports about links, addresses and routes, in a network namespace of
//! the test.
//!
//! The namespace is entered before any thread exists, so libtest's harness cannot be
//! used. It belongs to its own user namespace, so no root is needed if the machine lets
//! users create such namespaces.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use futures::TryStreamExt;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::sched::{CloneFlags, unshare};
use node_driver::facts::network::changes::Changes;
use node_driver::facts::network::kernel::Kernel;
use node_driver::facts::network::server::ApiServers;
use node_driver::kernel::attach::host_links::HostNetwork;
use node_driver::kernel::attach::netns::NetNs;
use publication::network::{DefaultRoute, Encapsulation, NetworkFacts, Withheld};
use rtnetlink::packet_route::link::{LinkMessage, MacVlanMode};
use rtnetlink::{Handle, LinkBridge, LinkMacVlan, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::process::{getegid, geteuid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;

/// Longest time from a change in the kernel to its notification.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// How long the kernel may take to set a link up or down.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if let Err(error) = enter() {
        return refuse(&format!("failed to create a network namespace (needs root): {error}"));
    }
    let trials = vec![
        trial("links_addresses_and_routes", links_addresses_and_routes),
        trial("every_change_is_notified", every_change_is_notified),
        trial("the_route_to_the_api_server_is_an_uplink", the_route_to_the_api_server_is_an_uplink),
        trial("uplinks_of_nexthop_objects_are_found", uplinks_of_nexthop_objects_are_found),
        trial(
            "an_interface_of_a_network_plugin_is_found",
            an_interface_of_a_network_plugin_is_found,
        ),
        trial("routes_of_others_cost_a_read_little", routes_of_others_cost_a_read_little),
        trial("a_flood_of_changes_blocks_no_read", a_flood_of_changes_blocks_no_read),
    ];
    // All tests share one namespace; each starts with it empty.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Enters new namespaces before any thread exists. The user is root in them, and processes
/// that a test starts have the same privileges.
fn enter() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    if unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).is_err() {
        return Ok(unshare(CloneFlags::CLONE_NEWNET)?);
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

#[expect(clippy::print_stderr, reason = "a test program")]
fn refuse(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}

/// A test with a socket to change the namespace, which is emptied first.
fn trial(name: &str, body: impl AsyncFnOnce(Namespace) + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failed::from)?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let namespace = Namespace { handle };
            namespace.empty().await;
            body(namespace).await;
        });
        Ok(())
    })
}

struct Namespace {
    handle: Handle,
}

impl Namespace {
    async fn add(&self, link: LinkMessage) {
        self.handle.link().add(link).execute().await.unwrap();
    }

    async fn set(&self, link: LinkMessage) {
        self.handle.link().set(link).execute().await.unwrap();
    }

    async fn index(&self, name: &str) -> u32 {
        let mut links = self.handle.link().get().match_name(name.to_owned()).execute();
        links.try_next().await.unwrap().unwrap().header.index
    }

    async fn delete(&self, name: &str) {
        let index = self.index(name).await;
        self.handle.link().del(index).execute().await.unwrap();
    }

    async fn empty(&self) {
        let (kernel, _changes) = Kernel::open().unwrap();
        // Deleting one end of a pair deletes the other one too.
        while let Some(link) =
            kernel.read().await.unwrap().interfaces.into_iter().find(|link| link.kind.is_some())
        {
            self.delete(&link.name).await;
        }
    }
}

/// Reads until the interface has this state: the kernel sets a link up or down
/// asynchronously, and notifies when it has.
async fn read_until(interface: &str, state: &str) -> NetworkFacts {
    let (kernel, mut changes) = Kernel::open().unwrap();
    loop {
        let facts = kernel.read().await.unwrap();
        let now = facts.interface(interface).and_then(|interface| interface.state.clone());
        if now.as_deref() == Some(state) {
            return facts;
        }
        let told = tokio::time::timeout(SETTLED_WITHIN, changes.next()).await;
        assert!(told.is_ok(), "{interface} is {now:?}, not {state}");
    }
}

async fn links_addresses_and_routes(namespace: Namespace) {
    namespace.add(LinkVeth::new("left", "right").build()).await;
    namespace.add(LinkBridge::new("bridge").build()).await;
    let (left, right) = (namespace.index("left").await, namespace.index("right").await);
    let bridge = namespace.index("bridge").await;
    namespace.add(LinkVeth::new("member", "member-peer").build()).await;
    let member = namespace.index("member").await;
    namespace.set(LinkUnspec::new_with_index(member).controller(bridge).build()).await;
    let mac = vec![0x02, 0, 0, 0, 0xbe, 0xef];
    namespace
        .set(LinkUnspec::new_with_index(left).address(mac).mtu(9000).alias("rail 0").up().build())
        .await;
    namespace.set(LinkUnspec::new_with_index(right).controller(bridge).up().build()).await;
    namespace.add(LinkMacVlan::new("child", left, MacVlanMode::Bridge).build()).await;
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 4));
    namespace.handle.address().add(left, address, 24).execute().await.unwrap();
    let default =
        RouteMessageBuilder::<Ipv4Addr>::new().output_interface(left).priority(100).build();
    namespace.handle.route().add(default).execute().await.unwrap();

    let facts = read_until("left", "up").await;
    let of = |name: &str| facts.interface(name).unwrap();
    assert_eq!(of("lo").encapsulation, Encapsulation::Loopback);
    assert_eq!(of("lo").kind, None);
    let interface = of("left");
    assert_eq!(interface.kind.as_deref(), Some("veth"));
    assert_eq!(interface.encapsulation, Encapsulation::Ether);
    assert_eq!(interface.mac.as_deref(), Some("02:00:00:00:be:ef"));
    assert_eq!((interface.mtu, interface.alias.as_deref()), (Some(9000), Some("rail 0")));
    let v4: Vec<_> = interface.addresses.iter().filter(|cidr| cidr.address.is_ipv4()).collect();
    assert_eq!(v4.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.4/24"]);
    assert_eq!((of("right").master, of("right").lower), (Some(bridge), Some(left)));
    assert_eq!(of("child").lower, Some(left));
    let route = DefaultRoute { ipv6: false, metric: 100, interface: left, advertised: false };
    assert_eq!(facts.default_routes, [route]);
    assert!(facts.uplinks().contains(&left));
    assert!(!facts.uplinks().contains(&bridge));
    // The other end of the uplink's pair is its lower interface, whether in the bridge or
    // not.
    let withheld = facts.withheld();
    let uplink = Some(&Withheld::Uplink);
    assert_eq!((withheld.get(&left), withheld.get(&right)), (uplink, uplink));
    assert_eq!(withheld.get(&member), Some(&Withheld::Member("bridge".to_owned())));
    assert_eq!(withheld.get(&bridge), None);
}

async fn every_change_is_notified(namespace: Namespace) {
    let (kernel, mut changes) = Kernel::open().unwrap();
    namespace.add(LinkVeth::new("left", "right").build()).await;
    let left = namespace.index("left").await;
    heard(&mut changes, "made").await;
    namespace.set(LinkUnspec::new_with_index(left).up().build()).await;
    heard(&mut changes, "up").await;
    namespace.set(LinkUnspec::new_with_index(left).down().build()).await;
    heard(&mut changes, "down").await;
    namespace.set(LinkUnspec::new_with_index(left).name("renamed").build()).await;
    heard(&mut changes, "renamed").await;
    let facts = read_until("renamed", "down").await;
    assert_eq!(facts.interface("left"), None);
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
    namespace.handle.address().add(left, address, 24).execute().await.unwrap();
    heard(&mut changes, "an address").await;
    namespace.delete("renamed").await;
    heard(&mut changes, "deleted").await;
    assert_eq!(kernel.read().await.unwrap().interface("right"), None);
}

/// Without a default route, and after the route has changed.
async fn the_route_to_the_api_server_is_an_uplink(namespace: Namespace) {
    let [server, unreachable] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(192, 0, 2, 1)];
    let servers = BTreeSet::from([server, unreachable].map(IpAddr::V4));
    let (kernel, _changes) = Kernel::open().unwrap();
    let known = ApiServers::default();
    known.set(servers);
    let kernel = kernel.reaching(known);
    let mut links = Vec::new();
    for (name, peer, last) in [("left", "left-peer", 4), ("right", "right-peer", 5)] {
        namespace.add(LinkVeth::new(name, peer).build()).await;
        let index = namespace.index(name).await;
        namespace.set(LinkUnspec::new_with_index(index).up().build()).await;
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, last, 1));
        namespace.handle.address().add(index, address, 24).execute().await.unwrap();
        links.push(index);
    }
    assert!(kernel.read().await.unwrap().uplinks().is_empty(), "there is no route yet");
    for (link, other, metric) in [(links[0], links[1], 200), (links[1], links[0], 100)] {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(server, 32)
            .output_interface(link)
            .priority(metric)
            .build();
        namespace.handle.route().add(route).execute().await.unwrap();
        let facts = kernel.read().await.unwrap();
        assert_eq!(facts.to_server, BTreeSet::from([link]));
        let uplinks = facts.uplinks();
        assert!(uplinks.contains(&link) && !uplinks.contains(&other), "{uplinks:?}");
        assert!(facts.default_routes.is_empty());
    }
}

/// With `nexthop_compat_mode` 0 a route names its object only.
async fn uplinks_of_nexthop_objects_are_found(namespace: Namespace) {
    for name in ["left", "right"] {
        namespace.add(LinkVeth::new(name, &format!("{name}-peer")).build()).await;
        for name in [name.to_owned(), format!("{name}-peer")] {
            let index = namespace.index(&name).await;
            namespace.set(LinkUnspec::new_with_index(index).up().build()).await;
        }
    }
    for line in [
        "addr add 10.0.4.1/24 dev left",
        "addr add 10.0.5.1/24 dev right",
        "nexthop add id 7 via 10.0.4.2 dev left",
        "nexthop add id 8 via 10.0.5.2 dev right",
        "nexthop add id 9 group 7/8",
    ] {
        ip(line);
    }
    let [left, right] = [namespace.index("left").await, namespace.index("right").await];
    let (kernel, _changes) = Kernel::open().unwrap();
    for mode in ["1", "0"] {
        fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", mode).unwrap();
        for (object, expected) in [("7", [true, false]), ("9", [true, true])] {
            ip(&format!("route replace default nhid {object}"));
            let uplinks = kernel.read().await.unwrap().uplinks();
            let are = [left, right].map(|index| uplinks.contains(&index));
            assert_eq!(are, expected, "{mode} {object}");
        }
    }
}

/// As Amazon's VPC CNI, Cilium and Terway set up a further interface of the node: a table of its own,
/// and a rule for each pod. A rail with a table has a rule for its own address.
async fn an_interface_of_a_network_plugin_is_found(namespace: Namespace) {
    for name in ["eni", "rail"] {
        namespace.add(LinkVeth::new(name, &format!("{name}-peer")).build()).await;
        let index = namespace.index(name).await;
        namespace.set(LinkUnspec::new_with_index(index).up().build()).await;
    }
    for line in [
        "addr add 10.1.0.4/24 dev eni",
        "route add default via 10.1.0.1 dev eni table 2",
        "addr add 10.2.0.4/24 dev rail",
        "route add default via 10.2.0.1 dev rail table 100",
        "rule add from 10.2.0.4 table 100",
        // A NIC of the host with the same table is in a pod.
        "rule add from 10.2.0.5 table 100",
        "rule add from 10.1.0.77 table main",
        "rule add not from 10.1.0.77 table 2",
        "-6 rule add from fd00::77 table 2",
    ] {
        ip(line);
    }
    let eni = namespace.index("eni").await;
    let (kernel, _changes) = Kernel::open().unwrap();
    assert!(kernel.read().await.unwrap().withheld().is_empty(), "no pod has an address of it");
    ip("rule add from 10.1.0.77 table 2");
    let withheld = kernel.read().await.unwrap().withheld();
    for line in [
        "rule del from 10.1.0.77 table 2",
        "rule del not from 10.1.0.77 table 2",
        "rule del from 10.2.0.4 table 100",
        "rule del from 10.2.0.5 table 100",
        "rule del from 10.1.0.77 table main",
        "-6 rule del from fd00::77 table 2",
    ] {
        ip(line);
    }
    assert_eq!(withheld, BTreeMap::from([(eni, Withheld::OfOthers)]));
}

/// Runs a line of `ip` in the namespace.
fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status().unwrap();
    assert!(status.success(), "ip {line}");
}

/// A router's table: publication needs its default routes only, and does not parse the others, as
/// preparation does.
async fn routes_of_others_cost_a_read_little(namespace: Namespace) {
    namespace.add(LinkVeth::new("left", "right").build()).await;
    let index = namespace.index("left").await;
    namespace.set(LinkUnspec::new_with_index(index).up().build()).await;
    let lines: Vec<_> = (0..40_000_u32)
        .map(|it| format!("route add 10.{}.{}.0/24 dev left\n", 1 + it / 250, it % 250))
        .chain(["route add default dev left metric 7\n".to_owned()])
        .collect();
    batch(&lines.concat());
    let (kernel, _changes) = Kernel::open().unwrap();
    // A tick is long beside one read.
    let before = user_time();
    for _ in 0..READS {
        let facts = kernel.read().await.unwrap();
        assert!(facts.uplinks().contains(&index));
    }
    let read = user_time() - before;
    let before = user_time();
    for _ in 0..READS {
        HostNetwork::read(&NetNs::current().unwrap(), &BTreeSet::new()).unwrap();
    }
    let whole = user_time() - before;
    assert!(read * 2 < whole, "{read} ticks for {READS} reads, {whole} with all routes");
    namespace.delete("left").await;
}

/// How many reads are compared.
const READS: usize = 5;

/// Processor time that this process has used itself, in ticks of 10 ms (`proc_pid_stat(5)`).
fn user_time() -> u32 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(11).unwrap().parse().unwrap()
}

/// Runs lines of `ip`.
fn batch(lines: &str) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    ip.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(ip.wait().unwrap().success());
}

/// Routes that come and go, more than the sockets' buffers hold, while the machine is read.
async fn a_flood_of_changes_blocks_no_read(namespace: Namespace) {
    let (kernel, mut changes) = Kernel::open().unwrap();
    let known = ApiServers::default();
    known.set((1..6).map(|last| IpAddr::V4(Ipv4Addr::new(10, 9, 0, last))).collect());
    let kernel = kernel.reaching(known);
    namespace.add(LinkVeth::new("left", "right").build()).await;
    let index = namespace.index("left").await;
    namespace.set(LinkUnspec::new_with_index(index).up().build()).await;
    let flood = thread::spawn(|| {
        for verb in ["add", "del"].repeat(4) {
            let lines: Vec<_> = (0..8_000_u32)
                .map(|it| format!("route {verb} 10.{}.{}.0/24 dev left\n", 64 + it / 250, it % 250))
                .collect();
            batch(&lines.concat());
        }
    });
    let mut reads = 0;
    while !flood.is_finished() {
        let read = tokio::time::timeout(SETTLED_WITHIN, kernel.read()).await;
        // A dump that changes interrupt each time is an error, and not a wait.
        let _ = read.expect("a read that ends");
        reads += 1;
    }
    flood.join().unwrap();
    assert!(reads > 1, "{reads} reads during the flood");
    heard(&mut changes, "the flood").await;
    assert!(kernel.read().await.unwrap().interface("left").is_some());
    namespace.delete("left").await;
    heard(&mut changes, "a change after the flood").await;
}

/// Waits for a change, and discards further notifications of it. The kernel notifies
/// before it answers the request that made the change.
async fn heard(changes: &mut Changes, what: &str) {
    let told = tokio::time::timeout(HEARD_WITHIN, changes.next()).await;
    assert!(told.is_ok_and(|heard| heard.is_ok()), "{what}: not heard");
    tokio::task::yield_now().await;
    changes.forget();
}
