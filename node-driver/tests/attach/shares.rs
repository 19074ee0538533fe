//! Interfaces of shares of a NIC, and their rate limits.

use crate::stage::Stage;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![
        ("a_share_sends_no_more_than_its_part", a_share_sends_no_more_than_its_part),
        (
            "a_share_without_a_name_has_the_name_of_the_nic",
            a_share_without_a_name_has_the_name_of_the_nic,
        ),
        ("a_macvlan_has_the_requested_mode", a_macvlan_has_the_requested_mode),
    ]
}

/// The claim's part of the NIC's bandwidth, in bits per second.
const RATE: u64 = 400_000_000;
/// Bytes that can be sent at once before the limit applies.
const BURST: u64 = 1 << 20;
/// Bytes for one second, sent by the pod.
const SENT: usize = 50_000_000;

/// Both kinds of interfaces are limited in the same way; the kernel of a test may lack
/// ipvlan.
fn a_share_sends_no_more_than_its_part() {
    let stage =
        Stage::with(&["link set rail0 up", "link set far up", "addr add 10.9.0.1/24 dev far"]);
    let parameters = json!({"interface": {"name": "net1", "addresses": ["10.9.0.2/24"]}});
    let mut attached = stage.attach(stage.plan_share(parameters, RATE));
    // Another container of the pod changes nothing.
    stage.again(&mut attached);
    let told = stage.in_pod("tc qdisc show dev net1");
    assert!(told.starts_with("qdisc tbf 1: root") && told.contains("rate 400Mbit"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");

    let listener = stage.host.run(async |_| Ok(TcpListener::bind("10.9.0.1:0"))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let received = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut count = 0;
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return count,
                more => count += more,
            }
        }
    });
    let begin = Instant::now();
    let mut stream = stage.pod.run(async |_| Ok(TcpStream::connect(address))).unwrap().unwrap();
    stream.write_all(&vec![0; SENT]).unwrap();
    drop(stream);
    assert_eq!(received.join().unwrap(), SENT);
    let took = begin.elapsed();
    let least = Duration::from_micros((SENT as u64 - BURST) * 8 * 1_000_000 / RATE);
    assert!(took >= least, "{SENT} bytes took {took:?}, expected at least {least:?}");
    stage.take_back(&attached);
}

/// The host also has an interface with that name: the NIC's own.
fn a_share_without_a_name_has_the_name_of_the_nic() {
    let stage = Stage::with(&["link set rail0 up"]);
    let mut attached = stage.attach(stage.plan_share(json!({}), RATE));
    stage.again(&mut attached);
    let told = stage.in_pod("ip -d link show rail0");
    assert!(told.contains("macvlan mode bridge "), "{told}");
    assert!(!stage.on_host("ip -d link show rail0").contains("macvlan"));
    stage.take_back(&attached);
}

fn a_macvlan_has_the_requested_mode() {
    for (asked, expected) in [
        (None, "bridge"),
        (Some("bridge"), "bridge"),
        (Some("private"), "private"),
        (Some("vepa"), "vepa"),
        (Some("passthru"), "passthru"),
    ] {
        let stage = Stage::with(&["link set rail0 up"]);
        let mut interface = json!({"name": "net1", "type": "macvlan"});
        if let Some(mode) = asked {
            interface["macvlanMode"] = mode.into();
        }
        let attached = stage.attach(stage.plan_share(json!({"interface": interface}), RATE));
        let told = stage.in_pod("ip -d link show net1");
        assert!(told.contains(&format!("macvlan mode {expected} ")), "{asked:?}: {told}");
        stage.take_back(&attached);
    }
}
