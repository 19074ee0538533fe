//! Hears of RDMA ports that go down or come up.
//!
//! The kernel announces neither by netlink nor by uevent, so the few files of
//! each port are read every second: some fifty microseconds for eight NICs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use topology_graph::HostRoot;

/// How often the files are read.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// The files that say what a port is at.
const FILES: [&str; 2] = ["state", "rate"];

/// The ports of a machine.
#[derive(Debug)]
pub(crate) struct Ports {
    devices: PathBuf,
    seen: Vec<String>,
}

impl Ports {
    /// The ports as they are now.
    pub(crate) fn of(host: &HostRoot) -> Self {
        let devices = host.sys().join("class/infiniband");
        let seen = states(&devices);
        Self { devices, seen }
    }

    /// Whether anything changed since the last look.
    pub(crate) fn changed(&mut self) -> bool {
        let now = states(&self.devices);
        let changed = now != self.seen;
        self.seen = now;
        changed
    }
}

/// A line for each file, sorted. A port that is going away is not there.
fn states(devices: &Path) -> Vec<String> {
    let ports = entries(devices).into_iter().flat_map(|device| entries(&device.join("ports")));
    let files = ports.flat_map(|port| FILES.map(|file| port.join(file)));
    let mut states: Vec<String> = files
        .filter_map(|file| Some(format!("{} {}", file.display(), fs::read_to_string(&file).ok()?)))
        .collect();
    states.sort();
    states
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live;

    #[test]
    fn a_port_that_goes_down_is_seen_once() {
        let root = live::plant("aks-mi300x");
        let mut ports = Ports::of(&HostRoot::at(root.path()));
        assert_eq!(ports.seen.len(), 16, "two files of each of eight ports");
        assert!(!ports.changed());
        let state = root.path().join("sys/class/infiniband/mlx5_3/ports/1/state");
        fs::write(state, "1: DOWN\n").unwrap();
        assert!(ports.changed());
        assert!(!ports.changed());
    }
}
