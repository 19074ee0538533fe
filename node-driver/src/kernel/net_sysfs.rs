//! Files of interfaces in sysfs (`Documentation/ABI/testing/sysfs-class-net`).
//!
//! A sysfs shows the interfaces of the namespace in which it was mounted, and a container may not
//! write to its own. So this is a new sysfs of the calling thread's namespace, which is mounted
//! nowhere and ends with the value (`fsmount(2)`).

use rustix::fd::OwnedFd;
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr};

/// The directory of interfaces.
const INTERFACES: &str = "class/net";
/// That of RDMA devices.
const RDMA_DEVICES: &str = "class/infiniband";

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
                let text = self.text(&format!("{INTERFACES}/{name}/{file}"))?;
                Some(((*file).to_owned(), text.parse().ok()?))
            })
            .collect()
    }

    /// Writes a number to one.
    pub(crate) fn write(&self, name: &str, file: &str, value: u64) -> io::Result<()> {
        let path = format!("{INTERFACES}/{name}/{file}");
        self.open_at(&path, OFlags::WRONLY)?.write_all(value.to_string().as_bytes())
    }

    /// The addresses that are GIDs of an interface, in the order of the ports' tables.
    pub(crate) fn gids(&self, name: &str) -> Vec<IpAddr> {
        let mut gids: Vec<IpAddr> = Vec::new();
        for port in self.ports() {
            let owners = format!("{port}/gid_attrs/ndevs");
            let mut places: Vec<u32> =
                self.names(&owners).iter().filter_map(|place| place.parse().ok()).collect();
            places.sort_unstable();
            // An empty place has no owner.
            places.retain(|it| self.text(&format!("{owners}/{it}")).as_deref() == Some(name));
            let texts = places.iter().filter_map(|it| self.text(&format!("{port}/gids/{it}")));
            let found = texts.filter_map(|text| text.parse::<Ipv6Addr>().ok());
            gids.extend(found.map(|gid| gid.to_canonical()));
        }
        gids
    }

    /// The directories of all ports of RDMA devices.
    fn ports(&self) -> Vec<String> {
        let devices = self.names(RDMA_DEVICES).into_iter();
        devices
            .flat_map(|device| {
                let ports = format!("{RDMA_DEVICES}/{device}/ports");
                self.names(&ports).into_iter().map(move |port| format!("{ports}/{port}"))
            })
            .collect()
    }

    /// The names in a directory, sorted; none if it does not exist.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = self.open_at(path, OFlags::DIRECTORY).and_then(|it| Ok(Dir::new(it)?));
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// The text of a file, without the end of the line.
    fn text(&self, path: &str) -> Option<String> {
        let mut text = String::new();
        self.open_at(path, OFlags::RDONLY).ok()?.read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    fn open_at(&self, path: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.sysfs, path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology_graph::fixture;

    #[test]
    fn gids_of_an_interface_are_in_the_order_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let machine = "[class/infiniband/mlx5_0/ports/1]
            gids/10 = 0000:0000:0000:0000:0000:ffff:0a09:000a
            gids/2 = fd09:0000:0000:0000:0000:0000:0000:0021
            gids/3 = fd09:0000:0000:0000:0000:0000:0000:0022
            gids/4 = 0000:0000:0000:0000:0000:0000:0000:0000
            gid_attrs/ndevs/10 = rail0
            gid_attrs/ndevs/2 = rail0
            gid_attrs/ndevs/3 = rail0.7";
        fixture::plant(machine, folder.path()).unwrap();
        let sysfs = File::open(folder.path()).unwrap().into();
        let gids = Interfaces { sysfs }.gids("rail0");
        let expected: [IpAddr; 2] = ["fd09::21".parse().unwrap(), "10.9.0.10".parse().unwrap()];
        assert_eq!(gids, expected);
    }
}
