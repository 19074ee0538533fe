//! Sets the number of virtual functions of a physical function
//! (`Documentation/PCI/pci-iov-howto.rst`).

use node_files::durable::FileError;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use topology_graph::PciAddress;

/// The kernel's file with the number, in the directory of the physical function.
const NUMBER: &str = "sriov_numvfs";
/// Prefix of the kernel's links to virtual functions, in the directory of the physical function.
const LINK: &str = "virtfn";

/// Sets the number, below a writable sysfs. Returns when the kernel has created the virtual
/// functions and bound each to a driver, if one is loaded. Many functions take seconds.
pub(super) fn set_number(sysfs: &Path, function: &str, number: u16) -> Result<(), FileError> {
    let path = sysfs.join(function).join(NUMBER);
    let file = OpenOptions::new().write(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(number.to_string().as_bytes()));
    written.map_err(|source| FileError::new("write", &path, explained(source)))
}

/// The virtual functions of a physical function.
pub(super) fn functions(sysfs: &Path, function: &str) -> io::Result<BTreeSet<PciAddress>> {
    let mut functions = BTreeSet::new();
    for entry in fs::read_dir(sysfs.join(function))? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(LINK.as_bytes()) {
            continue;
        }
        let target = fs::read_link(entry.path())?;
        let name = target.file_name().and_then(|name| name.to_str());
        functions.extend(name.and_then(|name| name.parse::<PciAddress>().ok()));
    }
    Ok(functions)
}

/// Adds a hint to the kernel's error.
fn explained(error: io::Error) -> io::Error {
    let hint = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ROFS) => "mount the host's /sys/devices, see --sysfs-dir",
        Some(_) => "the kernel's log has the reason",
        None => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use process::chain::Chain;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_number_is_written_only_to_an_existing_file() {
        let sysfs = tempfile::tempdir().unwrap();
        let function = "devices/pci0000:80/0000:86:00.0";
        let folder = sysfs.path().join(function);
        fs::create_dir_all(&folder).unwrap();
        let error = set_number(sysfs.path(), function, 8).unwrap_err();
        let text = Chain(&error).to_string();
        assert!(text.contains("sriov_numvfs`: No such file"), "{text}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "no file is created");
        fs::write(folder.join(NUMBER), "0\n").unwrap();
        set_number(sysfs.path(), function, 8).unwrap();
        assert!(fs::read_to_string(folder.join(NUMBER)).unwrap().starts_with('8'));
    }

    #[test]
    fn virtual_functions_are_found_by_their_links() {
        let sysfs = tempfile::tempdir().unwrap();
        let function = "devices/pci0000:80/0000:86:00.0";
        let folder = sysfs.path().join(function);
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(functions(sysfs.path(), function).unwrap(), BTreeSet::new());
        for (link, target) in [
            ("virtfn0", "../0000:86:10.0"),
            ("virtfn1", "../0000:86:10.2"),
            ("physfn", "../0000:86:00.1"),
        ] {
            symlink(target, folder.join(link)).unwrap();
        }
        let expected = ["0000:86:10.0", "0000:86:10.2"].map(|it| it.parse().unwrap());
        assert_eq!(functions(sysfs.path(), function).unwrap(), BTreeSet::from(expected));
        assert!(functions(sysfs.path(), "devices/none").is_err());
    }
}
