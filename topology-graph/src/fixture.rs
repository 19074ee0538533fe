//! Machines as readable text files. Planting one creates its files in a directory, which the
//! production reader then reads.
//!
//! A file has one fact per line, below a `[directory]` header or relative to the host's root:
//!
//! ```text
//! # Comments name the source of a fact.
//! [sys/devices/pci0000:15/0000:15:01.0]
//! class = 0x060400
//! numa_node = -1
//! /sys/bus/pci/devices/0000:15:01.0 -> .
//! ```
//!
//! - `path = text` is a file; `\n` and `\t` in the text are a newline and a tab.
//! - `path -> target` is a link. Its target is relative to the host's root (`/sys/…`) or to the
//!   header's directory (`.`, `./…`); any other target is used unchanged.
//! - `path @ 0x100 = 0x0001000d` is a little-endian word of a binary file.
//! - `path : char 231:192` is a character device, or an empty file if the caller may not create
//!   devices, or not on Linux.
//!
//! A path that begins with `/` is below the host's root, not the header's directory.

#![expect(clippy::disallowed_methods, reason = "planting a machine writes its files")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{PciAddress, RdmaDevice, Snapshot};

/// A fixture cannot be planted.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// A line is not a fact.
    #[error(
        "line {line}: invalid fixture line `{text}`: expected `path = text`, `path -> target` or `path : char 1:2`"
    )]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// A path leaves the directory.
    #[error("line {line}: `{path}` leads out of the machine's root")]
    Outside {
        /// The line number, from 1.
        line: usize,
        /// The path.
        path: String,
    },
    /// A file could not be created.
    #[error("line {line}: failed to make `{path}`")]
    Make {
        /// The line number, from 1.
        line: usize,
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// The length of a function's configuration space, in bytes.
const LONGEST_BINARY: usize = 4096;

/// What a line creates.
enum Fact<'t> {
    File(String),
    Link(&'t str),
    Word { offset: usize, word: u32 },
    Device { major: u32, minor: u32 },
}

/// The text of a machine in this crate.
pub fn machine(name: &str) -> Option<&'static str> {
    MACHINES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The line of a description by which it says that no machine is such: it was made for a test.
const MADE_FOR_TESTS: [&str; 2] = ["# [synthetic] every fact", "# [synthetic] every number"];

fn is_made_for_tests(text: &str) -> bool {
    text.lines().any(|line| MADE_FOR_TESTS.iter().any(|made| line.starts_with(made)))
}

/// The names of machines that exist, by what their descriptions say of their sources.
pub fn real_machines() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().filter(|(_, text)| !is_made_for_tests(text)).map(|(name, _)| *name)
}

/// The cloud's VM size for this machine, if it is a cloud's.
pub fn vm_size(name: &str) -> Option<&'static str> {
    VM_SIZES.iter().find(|(known, _)| *known == name).map(|(_, size)| *size)
}

/// The machines in this crate, by name.
pub const MACHINES: &[(&str, &str)] = &[
    ("a100-pcie-8gpu", include_str!("../machines/a100-pcie-8gpu.machine")),
    ("aws-p4d", include_str!("../machines/aws-p4d.machine")),
    ("aws-p5", include_str!("../machines/aws-p5.machine")),
    ("azure-gb300", include_str!("../machines/azure-gb300.machine")),
    ("azure-mi300x", include_str!("../machines/azure-mi300x.machine")),
    ("azure-nda100v4", include_str!("../machines/azure-nda100v4.machine")),
    ("azure-ndh100v5", include_str!("../machines/azure-ndh100v5.machine")),
    ("broken", include_str!("../machines/broken.machine")),
    ("dgx-a100", include_str!("../machines/dgx-a100.machine")),
    ("dgx-b200", include_str!("../machines/dgx-b200.machine")),
    ("dgx-h100", include_str!("../machines/dgx-h100.machine")),
    ("dgx-spark-gb10", include_str!("../machines/dgx-spark-gb10.machine")),
    ("epyc-nps4", include_str!("../machines/epyc-nps4.machine")),
    ("epyc-nps4-sockets", include_str!("../machines/epyc-nps4-sockets.machine")),
    ("gb200-dma-fq", include_str!("../machines/gb200-dma-fq.machine")),
    ("gb200-nvl72", include_str!("../machines/gb200-nvl72.machine")),
    ("gb300-data-direct", include_str!("../machines/gb300-data-direct.machine")),
    ("gcp-a4", include_str!("../machines/gcp-a4.machine")),
    ("gh200-quad", include_str!("../machines/gh200-quad.machine")),
    ("h200-vm-1gpu", include_str!("../machines/h200-vm-1gpu.machine")),
    ("h200-vm-8gpu", include_str!("../machines/h200-vm-8gpu.machine")),
    ("hgx-h100-cascade", include_str!("../machines/hgx-h100-cascade.machine")),
    ("ibmcloud-gx3d-h100", include_str!("../machines/ibmcloud-gx3d-h100.machine")),
    ("integrated-gpu", include_str!("../machines/integrated-gpu.machine")),
    ("intel-vmd", include_str!("../machines/intel-vmd.machine")),
    ("l40s-4gpu", include_str!("../machines/l40s-4gpu.machine")),
    ("laptop", include_str!("../machines/laptop.machine")),
    ("lenovo-sr680a-v3", include_str!("../machines/lenovo-sr680a-v3.machine")),
    ("mi250x-16gpu", include_str!("../machines/mi250x-16gpu.machine")),
    ("mi300x-8gpu", include_str!("../machines/mi300x-8gpu.machine")),
    ("nothing", include_str!("../machines/nothing.machine")),
    ("numa-unknown", include_str!("../machines/numa-unknown.machine")),
    ("oci-gb200", include_str!("../machines/oci-gb200.machine")),
    ("puget-trpro-wrx90", include_str!("../machines/puget-trpro-wrx90.machine")),
    ("pxb-tie", include_str!("../machines/pxb-tie.machine")),
    ("vgpu-host", include_str!("../machines/vgpu-host.machine")),
    ("x86-adapters", include_str!("../machines/x86-adapters.machine")),
    ("x86-one-per-switch", include_str!("../machines/x86-one-per-switch.machine")),
    ("x86-pcie-l40s", include_str!("../machines/x86-pcie-l40s.machine")),
    ("x86-plx-acs", include_str!("../machines/x86-plx-acs.machine")),
    ("x86-roce-lag", include_str!("../machines/x86-roce-lag.machine")),
    ("x86-snc2", include_str!("../machines/x86-snc2.machine")),
    ("x86-two-per-switch", include_str!("../machines/x86-two-per-switch.machine")),
];

/// VM sizes by the name of the machine.
const VM_SIZES: &[(&str, &str)] = &[
    ("aws-p4d", "p4d.24xlarge"),
    ("azure-gb300", "Standard_ND128isr_GB300_v6"),
    ("azure-mi300x", "Standard_ND96isr_MI300X_v5"),
    ("azure-nda100v4", "Standard_ND96asr_v4"),
    ("azure-ndh100v5", "Standard_ND96isr_H100_v5"),
];

/// Creates the machine's files below `root`; creates `root` if it is missing.
pub fn plant(text: &str, root: &Path) -> Result<(), PlantError> {
    let mut directory = String::new();
    let lines = text.lines().map(str::trim).enumerate().map(|(index, line)| (index + 1, line));
    for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
        if let Some(header) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            inside(line, header.trim_start_matches('/')).map(|header| directory = header)?;
            continue;
        }
        let (path, fact) =
            parse(text).ok_or_else(|| PlantError::Line { line, text: text.to_owned() })?;
        let path = inside(line, &absolute(&directory, path))?;
        let place = root.join(&path);
        make(&place, &path, &directory, &fact).map_err(|source| PlantError::Make {
            line,
            path: place,
            source,
        })?;
    }
    Ok(())
}

fn parse(text: &str) -> Option<(&str, Fact<'_>)> {
    // The first separator counts. Addresses contain colons, but without spaces around them.
    let found = [" = ", " -> ", " : "].map(|separator| text.find(separator));
    let [file, link, device] = found.map(|at| at.unwrap_or(usize::MAX));
    if let Some(path) = text.strip_suffix(" =") {
        return Some((path, Fact::File(String::new())));
    }
    if file < link && file < device {
        let (path, text) = text.split_once(" = ")?;
        if let Some((path, offset)) = path.split_once(" @ ") {
            let offset = usize::try_from(hex(offset)?).ok()?;
            return Some((path, Fact::Word { offset, word: hex(text.trim())? }));
        }
        return Some((path, Fact::File(unescape(text.trim()))));
    }
    if link < device {
        let (path, target) = text.split_once(" -> ")?;
        return Some((path, Fact::Link(target.trim())));
    }
    let (path, numbers) = text.split_once(" : char ")?;
    let (major, minor) = numbers.trim().split_once(':')?;
    Some((path, Fact::Device { major: major.parse().ok()?, minor: minor.parse().ok()? }))
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t")
}

/// A path relative to the host's root, without a leading slash.
fn absolute(directory: &str, path: &str) -> String {
    match path.trim().strip_prefix('/') {
        Some(absolute) => absolute.to_owned(),
        None => format!("{directory}/{}", path.trim()),
    }
}

fn inside(line: usize, path: &str) -> Result<String, PlantError> {
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if names.is_empty() || names.contains(&"..") {
        return Err(PlantError::Outside { line, path: path.to_owned() });
    }
    Ok(names.join("/"))
}

fn make(place: &Path, path: &str, directory: &str, fact: &Fact<'_>) -> io::Result<()> {
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent)?;
    }
    match fact {
        Fact::File(text) => fs::write(place, format!("{text}\n")),
        Fact::Link(target) => symlink(link_target(path, directory, target), place),
        Fact::Word { offset, word } => write_word(place, *offset, *word),
        Fact::Device { major, minor } => make_device(place, *major, *minor),
    }
}

/// Writes a word. The offset is limited to one page, since no such file is longer.
fn write_word(place: &Path, offset: usize, word: u32) -> io::Result<()> {
    let mut bytes = match fs::read(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let end = offset + size_of::<u32>();
    if end > LONGEST_BINARY {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset..end].copy_from_slice(&word.to_le_bytes());
    fs::write(place, bytes)
}

/// Makes absolute targets relative, so that the machine can be planted anywhere.
fn link_target(path: &str, directory: &str, target: &str) -> String {
    let absolute = match (target.strip_prefix('/'), target.strip_prefix('.')) {
        (Some(absolute), _) => absolute.to_owned(),
        (_, Some(rest)) if rest.is_empty() || rest.starts_with('/') => format!("{directory}{rest}"),
        _ => return target.to_owned(),
    };
    // As short as the kernel's own links: a link of sysfs does not leave sysfs.
    let (from, to): (Vec<_>, Vec<_>) = (path.split('/').collect(), absolute.split('/').collect());
    let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = "../".repeat(from.len().saturating_sub(shared + 1));
    up + &to[shared..].join("/")
}

#[cfg(target_os = "linux")]
fn make_device(place: &Path, major: u32, minor: u32) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    use rustix::io::Errno;

    let mode = Mode::from_raw_mode(0o666);
    match mknodat(CWD, place, FileType::CharacterDevice, mode, makedev(major, minor)) {
        Err(Errno::PERM) => fs::write(place, ""),
        result => result.map_err(io::Error::from),
    }
}

/// On the machines of people, which also have no devices with Linux' numbers.
#[cfg(not(target_os = "linux"))]
fn make_device(place: &Path, _major: u32, _minor: u32) -> io::Result<()> {
    fs::write(place, "")
}

/// The machine with virtual functions on each RDMA NIC, as the kernel lists them. Each NIC keeps its
/// RDMA device, and each function has one of its own.
#[must_use]
pub fn with_virtual_functions(mut snapshot: Snapshot, number: u8) -> Snapshot {
    let physical: Vec<PciAddress> = snapshot.rdma.iter().filter_map(|rdma| rdma.pci).collect();
    for address in physical {
        let Some(own) = snapshot.pci.iter_mut().find(|it| it.address == address) else { continue };
        own.sriov_num_vfs = Some(number.into());
        let own = own.clone();
        let Some(rdma) = snapshot.rdma.iter().find(|it| it.pci == Some(address)).cloned() else {
            continue;
        };
        for index in 1..=number {
            let Some(at) = virtual_address(address, index) else { continue };
            let mut function = own.clone();
            function.path = function.path.replace(&address.to_string(), &at.to_string());
            function.address = at;
            (function.physical_function, function.sriov_num_vfs) = (Some(address), None);
            snapshot.pci.push(function);
            let name = format!("{}v{index}", rdma.name);
            snapshot.rdma.push(RdmaDevice { name, pci: Some(at), ..rdma.clone() });
        }
    }
    snapshot.pci.sort_by_key(|function| function.address);
    snapshot
}

/// The address of a virtual function; those of two physical functions of one adapter alternate. `None`
/// if the slot has no more functions.
fn virtual_address(physical: PciAddress, index: u8) -> Option<PciAddress> {
    let text = physical.to_string();
    let (slot, function) = text.rsplit_once('.')?;
    let function = function.parse::<u8>().ok()? + 2 * index;
    format!("{slot}.{function}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_become_files_and_links() {
        let root = tempfile::tempdir().unwrap();
        let text = "# A comment.\n\
            [sys/devices/pci0000:15/0000:15:01.0]\n\
            class = 0x060400\n\
            empty =\n\
            information = A: \\t b\\nC: d\n\
            /sys/bus/pci/devices/0000:15:01.0 -> .\n\
            driver -> ../../x\n";
        plant(text, root.path()).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(read("sys/bus/pci/devices/0000:15:01.0/class"), "0x060400\n");
        assert_eq!(read("sys/bus/pci/devices/0000:15:01.0/information"), "A: \t b\nC: d\n");
        let link = |path: &str| fs::read_link(root.path().join(path)).unwrap();
        assert_eq!(
            link("sys/bus/pci/devices/0000:15:01.0"),
            Path::new("../../../devices/pci0000:15/0000:15:01.0")
        );
        assert_eq!(link("sys/devices/pci0000:15/0000:15:01.0/driver"), Path::new("../../x"));
    }

    #[test]
    fn invalid_lines_are_refused_with_their_number() {
        let root = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("a = 1\nnonsense", "line 2: invalid fixture line `nonsense`"),
            ("../a = 1", "line 1: `/../a` leads out of"),
            ("[..]", "line 1: `..` leads out of"),
            ("a : char x", "line 1: invalid fixture line `a : char x`"),
            ("a @ 0x0 = 1", "line 1: invalid fixture line `a @ 0x0 = 1`"),
            ("a @ 0x1000 = 0x1", "line 1: failed to make"),
            ("a = 1\na/b = 2", "line 2: failed to make"),
        ] {
            let error = plant(text, root.path()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
