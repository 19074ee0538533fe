//! A pod with thousands of interfaces of its own, each of which the kernel describes in 16 KiB and
//! more, if it has alternative names.

use crate::stage::Stage;
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufWriter, Write};

const INTERFACES: usize = 10_000;
/// How many of them have alternative names. Each has so many parts of so many names.
const NAMED: usize = 2_000;
const PARTS: usize = 10;
const NAMES: usize = 8;
/// The chart gives the driver 128 MiB, of which it needs about 15 itself.
const MEMORY: u64 = 64 << 20;

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![("thousands_of_interfaces_of_a_pod_take_little_memory", little_memory)]
}

fn little_memory() {
    let stage = Stage::with(&["link set rail0 up"]);
    let mut attached = stage.attach(stage.plan(json!({})));
    let folder = tempfile::tempdir().unwrap();
    let batch = folder.path().join("batch");
    // Not in memory, which is measured below.
    let mut lines = BufWriter::new(File::create(&batch).unwrap());
    for pair in 0..INTERFACES / 2 {
        writeln!(lines, "link add own{pair} group 7 type veth").unwrap();
    }
    // `ip` sends at most 1 KiB for a line.
    for (pair, part) in (0..NAMED).flat_map(|pair| (0..PARTS).map(move |part| (pair, part))) {
        write!(lines, "link property add dev own{pair}").unwrap();
        for name in 0..NAMES {
            write!(lines, " altname {pair}x{part}x{name}{}", "n".repeat(100)).unwrap();
        }
        writeln!(lines).unwrap();
    }
    lines.into_inner().unwrap();
    stage.in_pod(&format!("ip -batch {}", batch.display()));
    // The peak of the process becomes what it has now (`proc_pid_clear_refs(5)`).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    // As for the pod's next container, then as for its end.
    stage.again(&mut attached);
    stage.take_back(&attached);
    let more = peak() - before;
    assert!(more < MEMORY, "{more} bytes");
    // At once, while the end of a namespace would take the kernel minutes.
    stage.in_pod("ip link delete group 7");
}

/// The most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
