//! The kernel's PCI tree, read from a directory without this project's own reader.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A PCI function: what NCCL and RCCL read of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    /// The bridges above it, from the root; without the root bus.
    pub(crate) above: Vec<String>,
    pub(crate) class: String,
    /// Vendor, device, subsystem vendor and subsystem device.
    pub(crate) id: [u64; 4],
    /// Attributes of the link; empty if there is no file.
    pub(crate) speed: String,
    pub(crate) width: String,
    pub(crate) numa: String,
}

/// All functions by address.
pub(crate) type Tree = BTreeMap<String, Function>;

/// Reads the tree of a host's root.
pub(crate) fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    add(&root.join("sys/devices"), &[], &mut tree);
    tree
}

/// A directory that is no function is a root complex for what is below it.
fn add(directory: &Path, above: &[String], tree: &mut Tree) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if !entry.file_type().unwrap().is_dir() || name == "system" {
            continue;
        }
        if name.matches(':').count() == 2 && name.contains('.') {
            tree.insert(name.clone(), function(&path, above));
            let above: Vec<String> = above.iter().cloned().chain([name]).collect();
            add(&path, &above, tree);
        } else {
            add(&path, &[], tree);
        }
    }
}

fn function(path: &Path, above: &[String]) -> Function {
    let text = |file: &str| {
        fs::read_to_string(path.join(file)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let hex = |file: &str| {
        u64::from_str_radix(text(file).trim_start_matches("0x"), 16).unwrap_or_default()
    };
    Function {
        above: above.to_vec(),
        class: text("class"),
        id: ["vendor", "device", "subsystem_vendor", "subsystem_device"].map(hex),
        speed: text("max_link_speed"),
        width: text("max_link_width"),
        numa: text("numa_node"),
    }
}
