//! Writes the PCI ID database as one text with an index, for `src/pci_names.rs`. A
//! table of strings would have some 20,000 pointers, which every start of the driver
//! would relocate and keep in memory for the few names that it needs.

#![allow(clippy::print_stdout, reason = "cargo reads it")]

use pci_ids::{Vendor, Vendors};
use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    // Without this, cargo runs it and rebuilds the library after a change of any file here.
    println!("cargo::rerun-if-changed=build.rs");
    let mut vendors: Vec<&Vendor> = Vendors::iter().collect();
    vendors.sort_by_key(|vendor| vendor.id());
    let (mut text, mut index) = (String::new(), String::from("[\n"));
    for vendor in vendors {
        line(&mut index, &format!("({:#06x}, {}),", vendor.id(), text.len()));
        line(&mut text, vendor.name());
        for device in vendor.devices() {
            line(&mut text, &format!("{:04x} {}", device.id(), device.name()));
        }
    }
    index.push(']');
    let folder = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&folder).join("pci_names.txt"), text)?;
    fs::write(Path::new(&folder).join("pci_vendors.rs"), index)
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}
