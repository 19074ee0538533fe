//! How many virtual functions a physical one has (`Documentation/PCI/pci-iov-howto.rst`).

use crate::prepare::durable::FileError;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The kernel's file for it, in the directory of the physical function.
const NUMBER: &str = "sriov_numvfs";

/// Sets it, below a sysfs that can be written. Returns when the kernel has made them and given
/// each to a driver, where one is loaded: for many of them after seconds.
pub fn set_number(sysfs: &Path, function: &str, number: u16) -> Result<(), FileError> {
    let path = sysfs.join(function).join(NUMBER);
    let file = OpenOptions::new().write(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(number.to_string().as_bytes()));
    written.map_err(|source| FileError::new("write", &path, explained(source)))
}

/// The kernel's word, and where it says more.
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
    use std::fs;

    #[test]
    fn a_number_is_written_where_the_kernel_reads_it_and_nowhere_else() {
        let sysfs = tempfile::tempdir().unwrap();
        let function = "devices/pci0000:80/0000:86:00.0";
        let folder = sysfs.path().join(function);
        fs::create_dir_all(&folder).unwrap();
        let error = set_number(sysfs.path(), function, 8).unwrap_err();
        let text = Chain(&error).to_string();
        assert!(text.contains("sriov_numvfs`: No such file"), "{text}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "no file is made");
        fs::write(folder.join(NUMBER), "0\n").unwrap();
        set_number(sysfs.path(), function, 8).unwrap();
        assert!(fs::read_to_string(folder.join(NUMBER)).unwrap().starts_with('8'));
    }
}
