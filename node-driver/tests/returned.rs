//! What a pod with many rights leaves on a NIC does not stay on the host: how the kernel polls it, by
//! settings of the interface and of each NAPI instance, settings of its driver, and eBPF programs. On
//! real interfaces.
//!
//! Needs root: the kernel lets only root of the machine set these.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "attach/node.rs"]
mod node;
#[path = "attach/stage.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod stage;

#[path = "returned/claims.rs"]
mod claims;

use libtest_mimic::{Arguments, Trial};
use netlink_packet_core::NlasIterator;
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use nix::sched::{CloneFlags, unshare};
use node_driver::kernel::attach::netns::NetNs;
use rtnetlink::packet_route::link::{LinkAttribute, LinkXdp};
use rustix::process::geteuid;
use serde_json::json;
use stage::{RAIL, Stage, link};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

/// `NLM_F_REQUEST`, `NLM_F_ACK`, `NLM_F_DUMP`.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
/// Families, commands and attributes: see `include/uapi/linux/genetlink.h` and `netdev.h`.
const CONTROLLER: u16 = 0x10;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const NUMBER: u16 = 2;
const THREAD: u16 = 4;
const FLUSH_TIMEOUT: u16 = 6;
const SUSPEND_TIMEOUT: u16 = 7;

fn main() -> ExitCode {
    if !geteuid().is_root() || unshare(CloneFlags::CLONE_NEWNET).is_err() {
        return refuse("needs root: it sets what only root of the machine may set");
    }
    let all: [(&str, fn()); 10] = [
        (
            "a_claim_is_not_undone_while_a_hook_attaches_it",
            claims::a_claim_is_not_undone_while_a_hook_attaches_it,
        ),
        (
            "a_claim_whose_files_are_torn_comes_home",
            claims::a_claim_whose_files_are_torn_comes_home,
        ),
        ("a_claim_without_any_plan_is_told", claims::a_claim_without_any_plan_is_told),
        (
            "an_interface_that_comes_back_late_is_restored",
            claims::an_interface_that_comes_back_late_is_restored,
        ),
        (
            "an_interface_below_that_of_a_pod_stays_on_the_host",
            claims::an_interface_below_that_of_a_pod_stays_on_the_host,
        ),
        ("programs_of_a_pod_do_not_stay", programs_of_a_pod_do_not_stay),
        ("the_hosts_program_is_attached_again", the_hosts_program_is_attached_again),
        ("what_a_pod_set_of_the_driver_does_not_stay", what_a_pod_set_of_the_driver_does_not_stay),
        ("what_a_pod_set_for_polling_does_not_stay", what_a_pod_set_for_polling_does_not_stay),
        ("it_does_not_stay_on_an_interface_that_is_down", it_does_not_stay_on_one_that_is_down),
    ];
    let trials = all.into_iter().map(|(name, body)| {
        Trial::test(name, move || {
            body();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

#[expect(clippy::print_stderr, reason = "a test program")]
fn refuse(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}

fn what_a_pod_set_for_polling_does_not_stay() {
    let stage = Stage::with(&["link set rail0 up", "link set far up"]);
    stage.on_host("ethtool -K rail0 gro on");
    in_sysfs(&stage.host, "echo 1000 > gro_flush_timeout");
    let first = *instances(&stage.host).keys().next().unwrap();
    set(&stage.host, first, &[(FLUSH_TIMEOUT, 500), (SUSPEND_TIMEOUT, 7)]);
    let before = state(&stage.host);
    let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
    let ours = "echo 5000 > gro_flush_timeout; echo 3 > napi_defer_hard_irqs; echo 1 > threaded";
    in_sysfs(&stage.pod, ours);
    for number in instances(&stage.pod).into_keys() {
        set(&stage.pod, number, &[(FLUSH_TIMEOUT, 9), (SUSPEND_TIMEOUT, 99)]);
    }
    assert_ne!(state(&stage.pod), before);
    stage.take_back(&attached);
    assert_eq!(state(&stage.host), before);
}

fn it_does_not_stay_on_one_that_is_down() {
    let stage = Stage::with(&["link set far up"]);
    stage.on_host("ethtool -K rail0 gro on");
    let before = state(&stage.host);
    let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
    in_sysfs(&stage.pod, "echo 5000 > gro_flush_timeout; echo 3 > napi_defer_hard_irqs");
    stage.take_back(&attached);
    assert_eq!(state(&stage.host), before);
    stage.on_host("ip link set rail0 up");
    let timeouts: Vec<_> =
        instances(&stage.host).into_values().map(|it| it[&FLUSH_TIMEOUT]).collect();
    assert!(!timeouts.is_empty() && timeouts.iter().all(|it| *it == 0), "{timeouts:?}");
}

fn programs_of_a_pod_do_not_stay() {
    let stage = Stage::with(&["link set rail0 up", "link set far up"]);
    let attached = stage.attach(stage.plan(json!({"interface": {"name": RAIL}})));
    attach(&stage.pod);
    assert_ne!(programs(&stage.pod), Vec::<u32>::new());
    stage.take_back(&attached);
    assert_eq!(programs(&stage.host), Vec::<u32>::new());
}

/// The host's program goes into the pod and comes back. If the pod has replaced it, it is attached again
/// if the host still holds it.
fn the_hosts_program_is_attached_again() {
    let parameters = [json!({}), json!({"disableEbpfPrograms": true})];
    for (is_held, is_replaced, parameters) in [
        (true, false, &parameters[0]),
        (true, true, &parameters[0]),
        (false, true, &parameters[0]),
        (true, true, &parameters[1]),
    ] {
        let stage = Stage::with(&["link set rail0 up", "link set far up"]);
        let own = Some(attach(&stage.host)).filter(|_| is_held);
        let before = programs(&stage.host);
        assert_eq!(before.len(), 1);
        let mut interface = parameters.clone();
        interface["name"] = json!(RAIL);
        let attached = stage.attach(stage.plan(json!({"interface": interface})));
        let is_asked = *parameters != json!({});
        assert_eq!(programs(&stage.pod).is_empty(), is_asked, "{parameters}");
        if is_replaced {
            attach(&stage.pod);
            assert_ne!(programs(&stage.pod), before);
        }
        let lacking = stage.try_take_back(&attached);
        let is_lost = lacking.iter().any(|text| text.contains("attach them again"));
        assert_eq!((lacking.len(), is_lost), (usize::from(!is_held), !is_held), "{lacking:?}");
        let expected = if is_held && !is_asked { before } else { Vec::new() };
        assert_eq!(programs(&stage.host), expected, "held {is_held}, {parameters}");
        drop(own);
    }
}

/// Features and channels of a veth, and coalescing of a tap. The virtual machines have rings.
fn what_a_pod_set_of_the_driver_does_not_stay() {
    for (create, name, read, settings) in [
        (
            "",
            RAIL,
            "ethtool -k rail0",
            &["-K rail0 tso off gro on", "-K rail0 tx-nocache-copy on"][..],
        ),
        ("", RAIL, "ethtool -l rail0", &["-L rail0 rx 2 tx 2"]),
        ("tuntap add dev tap0 mode tap", "tap0", "ethtool -c tap0", &["-C tap0 rx-frames 8"]),
    ] {
        let lines = ["link set rail0 up", "link set far up", create];
        let lines: Vec<_> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        let stage = Stage::with(&lines);
        let before = stage.on_host(read);
        let parameters = json!({"interface": {"name": name}});
        let attached = stage.attach(stage.plan_of(&[name], parameters));
        for line in settings {
            stage.in_pod(&format!("ethtool {line}"));
        }
        assert_ne!(stage.in_pod(read), before);
        stage.take_back(&attached);
        assert_eq!(stage.on_host(read), before);
    }
}

/// The XDP programs of the interface, by number.
fn programs(namespace: &NetNs) -> Vec<u32> {
    let xdp = link(namespace, RAIL).1.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(xdp) => Some(xdp),
        _ => None,
    });
    let number =
        |it: LinkXdp| if let LinkXdp::SkbProgId(number) = it { Some(number) } else { None };
    xdp.unwrap_or_default().into_iter().filter_map(number).collect()
}

/// Attaches a program that drops everything (`XDP_FLAGS_SKB_MODE`), in place of another.
fn attach(namespace: &NetNs) -> OwnedFd {
    let program = load();
    let flags = LinkXdp::Flags(2);
    stage::set(namespace, RAIL, LinkAttribute::Xdp(vec![LinkXdp::Fd(program.as_raw_fd()), flags]));
    program
}

/// Loads `r0 = XDP_DROP; exit` (`BPF_PROG_LOAD`, `BPF_PROG_TYPE_XDP`).
#[expect(unsafe_code, reason = "no crate has this system call alone")]
fn load() -> OwnedFd {
    let code = [0xb7_u8, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let licence = c"GPL";
    let mut attributes = [6_u32.to_ne_bytes(), 2_u32.to_ne_bytes()].concat();
    attributes.extend((code.as_ptr() as u64).to_ne_bytes());
    attributes.extend((licence.as_ptr() as u64).to_ne_bytes());
    attributes.extend([0; 48]);
    // SAFETY: the structure has the given size, and what it points to outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 5, attributes.as_ptr(), attributes.len()) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has made the descriptor for this process.
    unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) }
}

/// The settings of the interface, and those of each instance in their order. The kernel numbers
/// instances and their threads anew.
fn state(namespace: &NetNs) -> String {
    let files = in_sysfs(namespace, "cat gro_flush_timeout napi_defer_hard_irqs threaded");
    let instances: Vec<_> = instances(namespace).into_values().collect();
    format!("{files}{instances:?}")
}

/// Runs a line of a shell in the interface's directory of a sysfs of the namespace.
fn in_sysfs(namespace: &NetNs, line: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (sysfs, script) = (folder.path().join("sys"), folder.path().join("script"));
    fs::create_dir(&sysfs).unwrap();
    let at = sysfs.display();
    let text = format!("set -e\nmount -t sysfs sysfs {at}\ncd {at}/class/net/{RAIL}\n{line}\n");
    fs::write(&script, text).unwrap();
    stage::run(namespace, &format!("unshare --mount sh {}", script.display()))
}

/// The NAPI instances of the interface by number, with the settings that pods can change.
fn instances(namespace: &NetNs) -> BTreeMap<u32, BTreeMap<u16, u64>> {
    let index = attribute(1, &link(namespace, RAIL).0.to_ne_bytes());
    let replies = ask(namespace, NAPI_GET, DUMP, index);
    let instance = |reply: Vec<u8>| {
        let mut values = numbers(&reply[4..]);
        let number = u32::try_from(values.remove(&NUMBER).unwrap()).unwrap();
        values.retain(|kind, _| *kind > THREAD);
        (number, values)
    };
    replies.into_iter().map(instance).collect()
}

/// Sets values of an instance.
fn set(namespace: &NetNs, number: u32, values: &[(u16, u32)]) {
    let mut attributes = attribute(NUMBER, &number.to_ne_bytes());
    attributes.extend(values.iter().flat_map(|(kind, it)| attribute(*kind, &it.to_ne_bytes())));
    ask(namespace, NAPI_SET, ACK, attributes);
}

/// Asks the family `netdev` in a namespace.
fn ask(namespace: &NetNs, command: u8, flags: u16, attributes: Vec<u8>) -> Vec<Vec<u8>> {
    let replies = namespace.run(async move |_| {
        let mut socket = Socket::new(NETLINK_GENERIC).unwrap();
        socket.bind_auto().unwrap();
        socket.connect(&SocketAddr::new(0, 0)).unwrap();
        let family = exchange(&socket, CONTROLLER, 0, 3, &attribute(2, b"netdev\0"));
        let family = u16::try_from(numbers(&family[0][4..])[&1]).unwrap();
        Ok(exchange(&socket, family, flags, command, &attributes))
    });
    replies.unwrap()
}

/// Sends a request; the payloads of the answers.
fn exchange(
    socket: &Socket,
    family: u16,
    flags: u16,
    command: u8,
    attributes: &[u8],
) -> Vec<Vec<u8>> {
    let length = u32::try_from(20 + attributes.len()).unwrap();
    let mut message = [length.to_ne_bytes().to_vec(), family.to_ne_bytes().to_vec()].concat();
    message.extend((REQUEST | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0).unwrap();
    let mut replies = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full().unwrap();
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let length = u32::from_ne_bytes(*rest.first_chunk().unwrap()) as usize;
            let kind = u16::from_ne_bytes([rest[4], rest[5]]);
            if kind == 2 || kind == 3 {
                let code = i32::from_ne_bytes(*rest[16..].first_chunk().unwrap());
                assert_eq!(code, 0, "the kernel refused command {command}");
                return replies;
            }
            replies.push(rest[16..length].to_vec());
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        if flags == 0 {
            return replies;
        }
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The attributes that are numbers.
fn numbers(payload: &[u8]) -> BTreeMap<u16, u64> {
    let number = |value: &[u8]| match value.len() {
        2 => Some(u16::from_ne_bytes(value.try_into().unwrap()).into()),
        4 => Some(u32::from_ne_bytes(value.try_into().unwrap()).into()),
        8 => Some(u64::from_ne_bytes(value.try_into().unwrap())),
        _ => None,
    };
    let attributes = NlasIterator::new(payload).flatten();
    let pair = |attribute: netlink_packet_core::NlaBuffer<&[u8]>| {
        Some((attribute.kind(), number(attribute.value())?))
    };
    attributes.filter_map(pair).collect()
}
