//! The ports of RDMA devices: which of them change, and which devices do not answer.
//!
//! The kernel announces neither by netlink nor by uevent that a port goes down or comes
//! up, so the few files of each port are read every second: some fifty microseconds for
//! eight NICs. A read asks the device's firmware. One that does not answer keeps the
//! reading thread in the kernel for a minute and more, so that thread is left to it, and
//! nobody reads the ports of that device until it has answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use topology_graph::{HostRoot, RdmaPort, Snapshot};

/// How often the files are read.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// Longest that a device may take for one look at its ports.
const PATIENCE: Duration = Duration::from_secs(2);

/// The files that say what a port is at.
const FILES: [&str; 2] = ["state", "rate"];

/// What is known of ports whose devices do not answer; clones share all.
#[derive(Clone, Debug, Default)]
pub struct KnownPorts(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// As they were read last, by device.
    ports: BTreeMap<String, Vec<RdmaPort>>,
    unresponsive: BTreeSet<String>,
}

impl KnownPorts {
    /// The RDMA devices that do not answer.
    pub fn unresponsive(&self) -> BTreeSet<String> {
        self.lock().unresponsive.clone()
    }

    /// Gives devices that do not answer the ports that they had last, and remembers those
    /// of the others.
    pub(crate) fn complete(&self, snapshot: &mut Snapshot, unread: &BTreeSet<String>) {
        let mut known = self.lock();
        for device in &mut snapshot.rdma {
            if unread.contains(&device.name) {
                device.ports = known.ports.get(&device.name).cloned().unwrap_or_default();
            }
        }
        let ports = snapshot.rdma.iter().map(|device| (device.name.clone(), device.ports.clone()));
        known.ports = ports.collect();
    }

    fn set(&self, device: &str, is_unresponsive: bool) {
        let unresponsive = &mut self.lock().unresponsive;
        if is_unresponsive {
            unresponsive.insert(device.to_owned());
        } else {
            unresponsive.remove(device);
        }
    }

    /// Each change is one call, so it is whole whatever a panicking holder did.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line for each file of a device's ports, by device.
type States = BTreeMap<String, Vec<String>>;

/// The ports of a machine, looked at again and again.
#[derive(Debug)]
pub(crate) struct Ports {
    devices: PathBuf,
    patience: Duration,
    seen: Option<States>,
    /// The devices that do not answer, with the thread that waits for each.
    waiting: BTreeMap<String, JoinHandle<States>>,
    known: KnownPorts,
}

/// At which device a reading thread is.
#[derive(Debug, Default)]
struct Progress {
    at: Option<(String, Instant)>,
    /// Nobody wants the rest of it.
    is_abandoned: bool,
}

impl Ports {
    /// The ports of this machine, of which nothing is known yet.
    pub(crate) fn of(host: &HostRoot, known: KnownPorts) -> Self {
        let devices = host.sys().join("class/infiniband");
        Self { devices, patience: PATIENCE, seen: None, waiting: BTreeMap::new(), known }
    }

    /// Whether anything changed since the last look. Takes no longer than the patience
    /// with each device that does not answer, and that once.
    pub(crate) async fn changed(&mut self) -> bool {
        let mut changed = self.welcome();
        loop {
            match self.look().await {
                Ok(now) => {
                    changed |= self.seen.as_ref().is_some_and(|seen| *seen != now);
                    self.seen = Some(now);
                    return changed;
                }
                Err(device) => {
                    tracing::warn!(device, "RDMA device does not answer; its ports are not read");
                    changed = true;
                }
            }
        }
    }

    /// Devices that have answered are read again.
    fn welcome(&mut self) -> bool {
        let answered: Vec<_> =
            self.waiting.extract_if(.., |_, thread| thread.is_finished()).collect();
        for (device, _) in &answered {
            tracing::info!(device, "RDMA device answers again");
            self.known.set(device, false);
        }
        !answered.is_empty()
    }

    /// Reads all devices that answer, or returns the one that has just failed to.
    async fn look(&mut self) -> Result<States, String> {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let (devices, skipped) = (self.devices.clone(), self.waiting.keys().cloned().collect());
        let theirs = Arc::clone(&progress);
        let mut thread = tokio::task::spawn_blocking(move || read(&devices, &skipped, &theirs));
        loop {
            match timeout(self.patience, &mut thread).await {
                Ok(states) => return Ok(states.unwrap_or_default()),
                Err(_) => {
                    if let Some(device) = late(&progress, self.patience) {
                        self.known.set(&device, true);
                        self.waiting.insert(device.clone(), thread);
                        return Err(device);
                    }
                }
            }
        }
    }
}

/// The device that a reading thread has waited for too long, of whom nobody waits any more.
fn late(progress: &Mutex<Progress>, patience: Duration) -> Option<String> {
    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, since) = progress.at.clone()?;
    progress.is_abandoned = since.elapsed() >= patience;
    progress.is_abandoned.then_some(device)
}

/// Device by device. A port that is going away is not there.
fn read(devices: &Path, skipped: &BTreeSet<String>, progress: &Mutex<Progress>) -> States {
    let mut states = States::new();
    for (name, device) in entries(devices) {
        if skipped.contains(&name) {
            continue;
        }
        let mut now = progress.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_abandoned {
            break;
        }
        now.at = Some((name.clone(), Instant::now()));
        drop(now);
        let ports = entries(&device.join("ports"));
        let files = ports.into_iter().flat_map(|(_, port)| FILES.map(|file| port.join(file)));
        let line =
            |file: PathBuf| Some(format!("{} {}", file.display(), fs::read_to_string(&file).ok()?));
        states.insert(name, files.filter_map(line).collect());
    }
    states
}

/// Sorted by name.
fn entries(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    entries.sort();
    entries
}

#[cfg(test)]
mod tests;
