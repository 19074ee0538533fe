//! Which interfaces and namespaces are the claim's, whatever a pod and the kernel do to names and
//! numbers.

use crate::stage::{RAIL, Stage, namespace};
use node_driver::kernel::attach::netns::NetNs;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![
        (
            "a_namespace_with_the_number_of_another_is_another",
            a_namespace_with_the_number_of_another_is_another,
        ),
        (
            "a_child_of_another_claim_with_the_same_name_stays",
            a_child_of_another_claim_with_the_same_name_stays,
        ),
        (
            "a_child_without_its_mark_is_found_by_its_parent",
            a_child_without_its_mark_is_found_by_its_parent,
        ),
        (
            "alternative_names_of_a_pod_keep_no_interface_there",
            alternative_names_of_a_pod_keep_no_interface_there,
        ),
        (
            "an_interface_gets_a_name_that_is_its_alternative_one",
            an_interface_gets_a_name_that_is_its_alternative_one,
        ),
        ("what_a_pod_set_does_not_stay_on_the_host", what_a_pod_set_does_not_stay_on_the_host),
        (
            "texts_that_nobody_can_read_hide_no_interface",
            texts_that_nobody_can_read_hide_no_interface,
        ),
        (
            "what_a_pod_puts_on_an_interface_does_not_keep_it",
            what_a_pod_puts_on_an_interface_does_not_keep_it,
        ),
        (
            "modes_that_a_pod_set_do_not_stay_on_the_host",
            modes_that_a_pod_set_do_not_stay_on_the_host,
        ),
        (
            "interfaces_that_come_back_with_each_others_names_get_their_own",
            interfaces_that_come_back_with_each_others_names_get_their_own,
        ),
    ]
}

fn inode(namespace: &NetNs) -> Value {
    serde_json::to_value(namespace.id().unwrap()).unwrap()["inode"].clone()
}

/// The kernel gives the number of a namespace that ended to the next one, usually at once.
#[expect(clippy::disallowed_methods, reason = "nothing tells when the kernel has freed the number")]
fn a_namespace_with_the_number_of_another_is_another() {
    let ended = namespace();
    let (id, number) = (ended.id().unwrap(), inode(&ended));
    assert!(ended.is(&id));
    drop(ended);
    let mut others = Vec::new();
    for _ in 0..500 {
        let other = namespace();
        if inode(&other) == number {
            assert!(!other.is(&id), "{id:?} is not {other:?}");
            return;
        }
        others.push(other);
        sleep(Duration::from_millis(10));
    }
    panic!("no other namespace got number {number}");
}

/// Pods usually have the same name for their children on a NIC.
fn a_child_of_another_claim_with_the_same_name_stays() {
    let stage = Stage::with(&["link set rail0 up"]);
    let plan = stage.plan_share(json!({}), 1_000_000_000);
    let mut other = plan.clone();
    let link = other.devices[0].link.as_mut().unwrap();
    link.mark = Some("dranet000000000".parse().unwrap());
    let attached = stage.attach(plan);
    let ended = attached.with_plan(other);
    stage.take_back(&ended);
    assert!(stage.in_pod("ip -d link show rail0").contains("macvlan"), "it is another claim's");
    stage.take_back(&attached);
    assert!(!stage.in_pod("ip link").contains("rail0"));
}

/// A pod with `NET_ADMIN` removes the alias and renames the interface.
fn a_child_without_its_mark_is_found_by_its_parent() {
    let stage = Stage::with(&["link set rail0 up"]);
    let mut attached = stage.attach(stage.plan_share(json!({}), 1_000_000_000));
    stage.in_pod("ip link set rail0 down");
    stage.in_pod("ip link set rail0 name other");
    stage.in_pod("ip link set other alias mine");
    stage.again(&mut attached);
    assert_eq!(stage.in_pod("ip -d link").matches("macvlan").count(), 1);
}

const SHOW: &str = "ip link show rail0";

fn alternative_names_of_a_pod_keep_no_interface_there() {
    let host = ["link add eth9 type veth peer name eth10", "link set rail0 up"];
    for names in [
        // Of the host.
        &["eth9"][..],
        // Of nobody: it must not stay on the host.
        &["mine"],
        // The interface's own name on the host.
        &["rail0", "eth10"],
    ] {
        let stage = Stage::with(&host);
        let before = stage.on_host(SHOW);
        let attached = stage.attach(stage.plan(json!({"interface": {"name": "net1"}})));
        for name in names {
            stage.in_pod(&format!("ip link property add dev net1 altname {name}"));
        }
        stage.take_back(&attached);
        assert_eq!(stage.on_host(SHOW), before, "{names:?}");
    }
    // Host and pod have each other's names.
    let stage = Stage::with(&host);
    let attached = stage.attach(stage.plan(json!({"interface": {"name": "net1"}})));
    stage.in_pod("ip link set net1 down");
    stage.in_pod("ip link set net1 name eth9");
    stage.on_host("ip link set eth10 down");
    stage.on_host("ip link set eth10 name rail0");
    stage.leaves(&attached);
    assert!(stage.on_host("ip link").contains("dranet"));
}

/// When a pod's namespace ends, the kernel returns NICs under the names that they had in the pod, which
/// can be each other's on the host.
fn interfaces_that_come_back_with_each_others_names_get_their_own() {
    let stage = Stage::with(&["link add rail1 type veth peer name far1", "link set rail0 up"]);
    let before = ["rail0", "rail1"].map(|name| stage.on_host(&format!("ip link show {name}")));
    let attached = stage.attach(stage.plan_of(&["rail0", "rail1"], json!({})));
    stage.leaves(&attached);
    for line in ["rail0 down", "rail0 name other", "rail1 name rail0", "other name rail1"] {
        stage.on_host(&format!("ip link set {line}"));
    }
    assert_eq!(stage.restored(&attached), Vec::<String>::new());
    let after = ["rail0", "rail1"].map(|name| stage.on_host(&format!("ip link show {name}")));
    assert_eq!(after, before);
}

/// Systems give NICs alternative names by their slot, and people ask for these.
fn an_interface_gets_a_name_that_is_its_alternative_one() {
    let stage = Stage::with(&[
        "link set rail0 up",
        "link property add dev rail0 altname enp12s0f0np0",
        "link property add dev rail0 altname slot7",
    ]);
    let before = stage.on_host(SHOW);
    // The pod has an interface with the other name.
    stage.in_pod("ip link add slot7 type veth peer name far7");
    let attached = stage.attach(stage.plan(json!({"interface": {"name": "enp12s0f0np0"}})));
    assert!(stage.in_pod("ip link show enp12s0f0np0").contains("mtu 9000"));
    stage.take_back(&attached);
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&stage.on_host(SHOW)), sorted(&before));
}

fn what_a_pod_set_does_not_stay_on_the_host() {
    let own = ["link set rail0 txqueuelen 500 group 3 alias storage", "link set rail0 promisc on"];
    for host in [&[][..], &own] {
        let stage = Stage::with(&[&["link set rail0 up"][..], host].concat());
        let show = "ip -d link show rail0";
        let before = stage.on_host(show);
        let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
        for line in [
            "ip link set rail0 promisc off",
            "ip link set rail0 allmulticast on txqueuelen 77 group 42 alias mine",
        ] {
            stage.in_pod(line);
        }
        if host.is_empty() {
            stage.in_pod("ip link set rail0 promisc on");
        }
        stage.take_back(&attached);
        assert_eq!(stage.on_host(show), before);
    }
}

/// With each of them the host could not use its interface any more, or only slowly.
fn modes_that_a_pod_set_do_not_stay_on_the_host() {
    const OWN: [&str; 5] = [
        "arp off",
        "multicast off",
        "mode dormant",
        "broadcast ff:ff:ff:ff:ff:00",
        "gso_max_segs 100",
    ];
    const OF_POD: [(&str, &str); 5] = [
        ("arp off", "arp on"),
        ("multicast off", "multicast on"),
        ("mode dormant", "mode default"),
        ("broadcast 02:00:00:00:00:01", "broadcast ff:ff:ff:ff:ff:ff"),
        ("gso_max_segs 1", "gso_max_segs 7"),
    ];
    for (own, (of_pod, other)) in OWN.into_iter().zip(OF_POD) {
        let own = format!("link set rail0 {own}");
        for (host, change) in [(&[][..], of_pod), (&[own.as_str()], other)] {
            let stage =
                Stage::with(&[&["link set rail0 up", "link set far up"][..], host].concat());
            let show = "ip -d link show rail0";
            let before = steady(&stage.on_host(show));
            let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
            let unchanged = steady(&stage.in_pod(show));
            stage.in_pod(&format!("ip link set rail0 {change}"));
            assert_ne!(steady(&stage.in_pod(show)), unchanged, "{change}");
            stage.take_back(&attached);
            assert_eq!(steady(&stage.on_host(show)), before, "{change}");
        }
    }
}

/// The kernel takes any bytes, of a pod and of the host.
fn texts_that_nobody_can_read_hide_no_interface() {
    for (is_hosts, what) in
        [(false, &["alias"][..]), (false, &["down", "name"]), (true, &["alias"])]
    {
        let stage = Stage::with(&["link set rail0 up", "link set far up"]);
        if is_hosts {
            set_unreadable(&stage.host, what);
        }
        let show = "ip -o link show";
        let before = steady(&stage.on_host(show));
        let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
        if !is_hosts {
            set_unreadable(&stage.pod, what);
        }
        stage.take_back(&attached);
        assert_eq!(steady(&stage.on_host(show)), before, "{is_hosts} {what:?}");
    }
}

/// Sets a property of the interface to bytes that are not UTF-8.
fn set_unreadable(namespace: &NetNs, what: &[&str]) {
    let status = namespace.run(async |_| {
        let mut ip = Command::new("ip");
        let ip = ip.args(["link", "set", RAIL]).args(what).arg(OsStr::from_bytes(b"\xff\xfe"));
        Ok(ip.status().unwrap())
    });
    assert!(status.unwrap().success(), "{what:?}");
}

fn what_a_pod_puts_on_an_interface_does_not_keep_it() {
    for lines in [
        &["ip link add link rail0 name upper type macvlan"][..],
        &["ip link add link rail0 name upper type macvtap"],
        &["ip link add upper type vxlan id 3 dev rail0 dstport 4789"],
        &["ip link add upper type bridge", "ip link set rail0 master upper"],
    ] {
        let stage = Stage::with(&["link set rail0 up", "link set far up"]);
        let show = "ip -d -o link show";
        let before = steady(&stage.on_host(show));
        let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
        for line in lines.iter().chain(&["ip link set upper up"]) {
            stage.in_pod(line);
        }
        stage.take_back(&attached);
        assert_eq!(steady(&stage.on_host(show)), before, "{lines:?}");
    }
}

/// What `ip` shows, without what follows the carrier, which the kernel notices later.
fn steady(shown: &str) -> String {
    let mut words = Vec::new();
    for word in shown.replace("NO-CARRIER,", "").replace(",LOWER_UP", "").split_whitespace() {
        let is_state = words.last().is_some_and(|last| last == "state");
        words.push(if is_state { "-".to_owned() } else { word.to_owned() });
    }
    words.join(" ")
}
