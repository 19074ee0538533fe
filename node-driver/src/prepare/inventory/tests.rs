//! The number of a virtual function, and devices besides NICs.

use super::*;
use std::os::unix::fs::symlink;

/// Functions are numbered by their links, which may not be in the order of their
/// addresses.
#[test]
fn a_virtual_function_has_the_number_of_its_link() {
    let root = tempfile::tempdir().unwrap();
    let address = |text: &str| text.parse::<PciAddress>().unwrap();
    let physical = address("0000:86:00.0");
    let folder = root.path().join("sys/bus/pci/devices").join(physical.to_string());
    fs::create_dir_all(&folder).unwrap();
    for (number, function) in [(0, "0000:86:10.0"), (2, "0000:86:10.4"), (10, "0000:86:12.4")] {
        symlink(format!("../{function}"), folder.join(format!("virtfn{number}"))).unwrap();
    }
    let host = HostRoot::at(root.path());
    for (function, expected) in
        [("0000:86:10.0", Some(0)), ("0000:86:12.4", Some(10)), ("0000:86:10.2", None)]
    {
        assert_eq!(number_of(address(function), physical, &host), expected, "{function}");
    }
    assert_eq!(number_of(address("0000:86:10.0"), address("0000:87:00.0"), &host), None);
}
