//! Access control of switch ports, read from many forms of capability lists.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::fmt::Write;

use topology_graph::fixture::{machine, plant};
use topology_graph::{
    Acs, AcsControl, Gdr, HostRoot, PciAddress, PciFunction, Snapshot, Topology, read,
};

fn snapshot(text: &str) -> Snapshot {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    read(&HostRoot::at(root.path())).unwrap()
}

fn topology(text: &str) -> Topology {
    Topology::build(&snapshot(text), None).0
}

fn at(address: &str) -> PciAddress {
    address.parse().unwrap()
}

const MACHINE: &str = "x86-plx-acs";
/// A downstream port of its switch, above GPU0.
const PORT: &str = "0000:02:08.0";

/// The list of PLX switches descends and ascends before it reaches access control.
#[test]
fn a_list_that_does_not_ascend_is_read_to_its_end() {
    let topology = topology(machine(MACHINE).unwrap());
    let acs = |nic: &str| topology.nic(at(nic)).unwrap().acs;
    assert_eq!(acs("0000:04:00.0"), Some(Acs::Redirect));
    assert_eq!(acs("0000:06:00.0"), Some(Acs::Direct));
    let gdr = |gpu: &str, nic: &str| topology.gdr(at(gpu), at(nic));
    assert_eq!(gdr("0000:03:00.0", "0000:04:00.0"), Gdr::AcsRedirect);
    assert_eq!(gdr("0000:05:00.0", "0000:04:00.0"), Gdr::AcsRedirect);
    assert_eq!(gdr("0000:05:00.0", "0000:06:00.0"), Gdr::Ok);
}

/// The port with a configuration space of only these words.
fn port_with(words: &[(u32, u32)]) -> PciFunction {
    let mut text = String::new();
    let mut is_port = false;
    for line in machine(MACHINE).unwrap().lines() {
        is_port = if line.starts_with('[') { line.ends_with(&format!("{PORT}]")) } else { is_port };
        if !is_port || !line.starts_with("config") {
            text.extend([line, "\n"]);
        }
        if is_port && line.starts_with('[') {
            for (offset, word) in words {
                writeln!(text, "config @ {offset:#x} = {word:#010x}").unwrap();
            }
        }
    }
    snapshot(&text).function(at(PORT)).unwrap().clone()
}

#[test]
fn incomplete_capability_lists_are_unknown() {
    let redirecting = Some(AcsControl(0x1d));
    for (words, expected, case) in [
        (&[][..], None, "no configuration space"),
        (&[(0x3c, 0)], None, "the first 64 bytes, as without rights"),
        (&[(0xfc, 0)], None, "256 bytes, as of conventional PCI"),
        (&[(0x100, 0)], Some(AcsControl(0)), "no extended capability"),
        (&[(0x100, u32::MAX)], None, "a function that does not answer"),
        (&[(0x100, 0x0001_0001)], Some(AcsControl(0)), "another capability only"),
        (&[(0x100, 0x1401_0001), (0x140, 0x1001_0003)], None, "a list that leads back"),
        (&[(0x100, 0x1001_0001)], None, "a capability that follows itself"),
        (&[(0x100, 0x2001_0001)], None, "a list that goes on beyond what can be read"),
        (&[(0x100, 0x2001_0001), (0x200, u32::MAX)], None, "a list that ends in no answer"),
        (&[(0x100, 0x0401_0001)], Some(AcsControl(0)), "a next one below the extended space"),
        (&[(0x100, 0x0001_000d)], None, "access control whose register cannot be read"),
        (&[(0x100, 0x0001_000d), (0x104, 0x001d_005f)], redirecting, "access control first"),
        (
            &[
                (0x100, 0xf241_0003),
                (0xf24, 0x1401_000d),
                (0xf28, 0x001d_005f),
                (0x140, 0x0001_0001),
            ],
            redirecting,
            "access control after a jump",
        ),
        (
            &[(0x100, 0x1401_000d), (0x104, 0x001d_005f), (0x140, 0x1001_0001)],
            redirecting,
            "access control in a list that leads back",
        ),
    ] {
        assert_eq!(port_with(words).acs, expected, "{case}");
    }
}
