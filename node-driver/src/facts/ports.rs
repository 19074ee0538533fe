//! Polls the ports of RDMA devices for changes, and detects devices that do not answer.
//!
//! The kernel announces port changes neither by netlink nor by uevent, so the few files
//! of each port are read every second: some fifty microseconds for eight NICs. A read
//! asks the device's firmware. A device that does not answer blocks the reading thread in
//! the kernel for a minute or more. That thread is then abandoned, and the ports of that
//! device are not read until it has answered.

use crate::facts::errors;
use crate::facts::reads::Reads;
use publication::health::PortErrors;
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

/// Longest time that one device may take for a read of its ports.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many polls are between two reads of error counters.
const ERRORS_EVERY: u32 = 30;

/// The files that show the state of a port.
const FILES: [&str; 2] = ["state", "rate"];

/// The last known ports of devices that do not answer, and how far reads of the machine are. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct KnownPorts {
    known: Arc<Mutex<PortStates>>,
    reads: Reads,
}

#[derive(Debug, Default)]
struct PortStates {
    /// The ports as they were last read, by device.
    ports: BTreeMap<String, Vec<RdmaPort>>,
    unresponsive: BTreeSet<String>,
    /// Error counters, by device.
    errors: BTreeMap<String, PortErrors>,
}

impl KnownPorts {
    /// The error counters of RDMA devices, as they were read last.
    pub fn errors(&self) -> BTreeMap<String, PortErrors> {
        self.lock().errors.clone()
    }

    /// Reads of the machine.
    pub(crate) fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The RDMA devices that do not answer.
    pub fn unresponsive(&self) -> BTreeSet<String> {
        self.lock().unresponsive.clone()
    }

    /// Fills in the last known ports of devices that do not answer, and remembers the
    /// ports of the others.
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

    /// A poisoned lock is harmless: each change is a single call, so the value is always
    /// complete.
    fn lock(&self) -> MutexGuard<'_, PortStates> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line for each file of a device's ports, by device.
type States = BTreeMap<String, Vec<String>>;

/// Polls the ports of a machine.
#[derive(Debug)]
pub(crate) struct Ports {
    devices: PathBuf,
    patience: Duration,
    seen: Option<States>,
    /// The devices that do not answer, with the thread that waits for each.
    waiting: BTreeMap<String, JoinHandle<States>>,
    known: KnownPorts,
    /// Polls until error counters are read again.
    until_errors: u32,
}

/// The device that a reading thread is at.
#[derive(Debug, Default)]
struct Progress {
    at: Option<(String, Instant)>,
    /// The result is no longer wanted.
    is_abandoned: bool,
}

impl Ports {
    /// Polls this machine's ports; nothing is known about them yet.
    pub(crate) fn new(host: &HostRoot, known: KnownPorts) -> Self {
        let devices = host.sys().join("class/infiniband");
        Self {
            devices,
            patience: PATIENCE,
            seen: None,
            waiting: BTreeMap::new(),
            known,
            until_errors: 0,
        }
    }

    /// Whether anything has changed since the last poll. Each device that does not answer
    /// delays one poll by at most [`PATIENCE`].
    pub(crate) async fn changed(&mut self) -> bool {
        let mut changed = self.resume_answering() | self.known.reads().resume();
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

    /// Resumes reading devices that have answered; returns whether there are any.
    fn resume_answering(&mut self) -> bool {
        let answered: Vec<_> =
            self.waiting.extract_if(.., |_, thread| thread.is_finished()).collect();
        for (device, _) in &answered {
            tracing::info!(device, "RDMA device answers again");
            self.known.set(device, false);
        }
        !answered.is_empty()
    }

    /// Reads all devices that answer, or returns the one that has just failed to answer.
    async fn look(&mut self) -> Result<States, String> {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let (devices, skipped) = (self.devices.clone(), self.waiting.keys().cloned().collect());
        let theirs = Arc::clone(&progress);
        let known = (self.until_errors == 0).then(|| self.known.clone());
        let mut thread =
            tokio::task::spawn_blocking(move || read(&devices, &skipped, &theirs, known.as_ref()));
        loop {
            match timeout(self.patience, &mut thread).await {
                Ok(states) => {
                    self.until_errors = self.until_errors.checked_sub(1).unwrap_or(ERRORS_EVERY);
                    return Ok(states.unwrap_or_default());
                }
                Err(_) => {
                    if let Some(device) = overdue(&progress, self.patience) {
                        self.known.set(&device, true);
                        self.waiting.insert(device.clone(), thread);
                        return Err(device);
                    }
                }
            }
        }
    }
}

/// The device that has blocked a reading thread for too long; the thread is then
/// abandoned.
fn overdue(progress: &Mutex<Progress>, patience: Duration) -> Option<String> {
    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, since) = progress.at.clone()?;
    progress.is_abandoned = since.elapsed() >= patience;
    progress.is_abandoned.then_some(device)
}

/// Reads device by device; with `known`, also its error counters. A port that disappears meanwhile is
/// left out.
fn read(
    devices: &Path,
    skipped: &BTreeSet<String>,
    progress: &Mutex<Progress>,
    known: Option<&KnownPorts>,
) -> States {
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
        let lines = files
            .filter_map(|file| {
                Some(format!("{} {}", file.display(), fs::read_to_string(&file).ok()?))
            })
            .collect();
        if let Some((known, errors)) = known.zip(errors::of_ports(&device)) {
            known.lock().errors.insert(name.clone(), errors);
        }
        states.insert(name, lines);
    }
    states
}

/// The directory's entries, sorted by name.
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
