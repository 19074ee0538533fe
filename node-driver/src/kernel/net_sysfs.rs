//! Files of interfaces in sysfs (`Documentation/ABI/testing/sysfs-class-net`).
//!
//! A sysfs shows the interfaces of the namespace in which it was mounted, and a container may not
//! write to its own. So this is a new sysfs of the calling thread's namespace, which is mounted
//! nowhere and ends with the value (`fsmount(2)`).

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};

/// The interfaces of a namespace.
#[derive(Debug)]
pub(crate) struct Interfaces {
    sysfs: OwnedFd,
}

impl Interfaces {
    /// Those of the calling thread's namespace. Needs `CAP_SYS_ADMIN` there.
    pub(crate) fn open() -> io::Result<Self> {
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let sysfs = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(Self { sysfs })
    }

    /// The numbers in those of these files that this kernel has.
    pub(crate) fn read(&self, name: &str, files: &[&str]) -> BTreeMap<String, u64> {
        files
            .iter()
            .filter_map(|file| {
                let mut text = String::new();
                self.file(name, file, OFlags::RDONLY).ok()?.read_to_string(&mut text).ok()?;
                Some(((*file).to_owned(), text.trim().parse().ok()?))
            })
            .collect()
    }

    /// Writes a number to one.
    pub(crate) fn write(&self, name: &str, file: &str, value: u64) -> io::Result<()> {
        self.file(name, file, OFlags::WRONLY)?.write_all(value.to_string().as_bytes())
    }

    fn file(&self, name: &str, file: &str, flags: OFlags) -> io::Result<File> {
        let path = format!("class/net/{name}/{file}");
        Ok(openat(&self.sysfs, path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}
