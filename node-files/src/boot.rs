//! Which machine and which boot a root belongs to.

use std::fs;
use std::path::Path;
use std::time::Duration;
use topology_graph::HostRoot;

/// Below procfs: a UUID that the kernel generates at every boot.
const BOOT_ID: &str = "sys/kernel/random/boot_id";

/// The boot ID of the machine with this root; `None` for a recorded machine.
pub fn boot_id(host: &HostRoot) -> Option<String> {
    read(&host.proc())
}

/// Time since the machine booted, from `proc/uptime`.
pub fn uptime(host: &HostRoot) -> Option<Duration> {
    let text = fs::read_to_string(host.proc().join("uptime")).ok()?;
    Duration::try_from_secs_f64(text.split(' ').next()?.parse().ok()?).ok()
}

/// Whether the root is the machine that this process runs on, so that its kernel can be
/// asked.
pub fn is_this_machine(host: &HostRoot) -> bool {
    boot_id(host).is_some_and(|boot| read(Path::new("/proc")) == Some(boot))
}

fn read(proc: &Path) -> Option<String> {
    let text = fs::read_to_string(proc.join(BOOT_ID)).ok()?;
    Some(text.trim().to_owned()).filter(|boot| !boot.is_empty())
}
