//! Reads the machine with patience. A file of a device that does not answer, or that is being
//! changed, blocks the reading thread in the kernel: `sriov_numvfs` for as long as virtual
//! functions are made, any file during a driver's probe. That thread then waits alone, the file is
//! left out until it has answered, and what it said last stays. All other devices are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use topology_graph::{PciAddress, PciFunction, ReadError, ReadObserver, Snapshot};

/// Longest time that the first file may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for further files of the same read: devices of one card often stop together.
const LATER_PATIENCE: Duration = Duration::from_millis(500);
/// Longest time for a whole read. The kubelet waits 45 seconds for a claim.
const LIMIT: Duration = Duration::from_secs(25);
/// Threads that may wait for files at the same time.
const MAX_WAITING: usize = 32;
/// The stack of a reading thread.
const STACK_BYTES: usize = 1 << 20;

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;

/// The name under which RDMA netlink is waited for.
pub(crate) const RDMA_NETLINK: &str = "RDMA netlink";

/// A machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// It has no sysfs.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It took too long.
    #[error("the machine could not be read within {LIMIT:?}; `{file}` was being read")]
    Late {
        /// The file.
        file: String,
    },
    /// Too many threads wait for files.
    #[error(
        "{MAX_WAITING} files of this machine do not answer, among them `{file}`; the machine is \
         read again when they do; see dmesg for the devices"
    )]
    Stuck {
        /// One of the files.
        file: String,
    },
    /// The thread could not be started, or it panicked.
    #[error("the thread that reads the machine failed")]
    Thread,
}

/// What is known about files that do not answer. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The files that do not answer, each with the thread that waits for it.
    waiting: BTreeMap<String, JoinHandle<()>>,
    /// Directories of functions that this driver is changing.
    changing: BTreeSet<String>,
    /// The network functions as they were last read.
    functions: BTreeMap<PciAddress, PciFunction>,
}

/// A function that is being changed, until the value is dropped.
#[derive(Debug)]
pub(crate) struct Changing {
    reads: Reads,
    directory: String,
}

/// How far a reading thread is.
#[derive(Debug)]
pub(crate) struct Watched {
    skipped: BTreeSet<String>,
    changing: BTreeSet<String>,
    at: Mutex<At>,
}

#[derive(Debug)]
struct At {
    file: String,
    since: Instant,
    /// The result is no longer wanted.
    is_abandoned: bool,
}

impl Reads {
    /// Reads the machine by this work, which runs on a thread of its own, again without the files
    /// that do not answer. Blocks, for at most [`LIMIT`].
    pub(crate) fn read<F>(&self, work: F) -> Result<Snapshot, MachineError>
    where
        F: FnOnce(Arc<Watched>) -> Result<Snapshot, ReadError> + Clone + Send + 'static,
    {
        let began = Instant::now();
        let mut patience = PATIENCE;
        loop {
            let watched = Arc::new(self.next()?);
            let (theirs, work) = (Arc::clone(&watched), work.clone());
            let (sender, result) = channel();
            let thread = thread::Builder::new()
                .name("machine".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    // The receiver is gone if the read was abandoned.
                    let _ = sender.send(work(theirs));
                })
                .map_err(|_| MachineError::Thread)?;
            match wait(&result, &watched, patience, began)? {
                Ok(read) => {
                    let mut snapshot = read?;
                    self.complete(&mut snapshot, &watched);
                    return Ok(snapshot);
                }
                Err(file) => {
                    tracing::warn!(file, "File does not answer; what it said last stays");
                    self.lock().waiting.insert(file, thread);
                    patience = LATER_PATIENCE;
                }
            }
        }
    }

    /// Whether files that did not answer have answered.
    pub(crate) fn resume(&self) -> bool {
        let mut state = self.lock();
        let answered: Vec<_> =
            state.waiting.extract_if(.., |_, thread| thread.is_finished()).collect();
        for (file, _) in &answered {
            tracing::info!(file, "File answers again");
        }
        !answered.is_empty()
    }

    /// Leaves out the files of a function that this driver changes. The directory is below sysfs.
    #[cfg_attr(
        not(feature = "host-setup"),
        expect(dead_code, reason = "only the setup changes functions")
    )]
    pub(crate) fn change(&self, directory: &str) -> Changing {
        let directory = format!("sys/{directory}");
        self.lock().changing.insert(directory.clone());
        Changing { reads: self.clone(), directory }
    }

    /// What the next thread leaves out.
    fn next(&self) -> Result<Watched, MachineError> {
        self.resume();
        let state = self.lock();
        if state.waiting.len() >= MAX_WAITING {
            let file = state.waiting.keys().next().cloned().unwrap_or_default();
            return Err(MachineError::Stuck { file });
        }
        let skipped = state.waiting.keys().cloned().collect();
        let at = At { file: String::new(), since: Instant::now(), is_abandoned: false };
        Ok(Watched { skipped, changing: state.changing.clone(), at: Mutex::new(at) })
    }

    /// Fills in what is known about functions with files that were left out, and remembers the
    /// network functions.
    fn complete(&self, snapshot: &mut Snapshot, watched: &Watched) {
        // What is left out on purpose is no fault of the machine.
        snapshot
            .anomalies
            .retain(|anomaly| !watched.changing.iter().any(|it| is_in(&anomaly.subject, it)));
        let mut state = self.lock();
        for known in state.functions.values() {
            let directory = format!("sys/{}", known.path);
            let has_skipped = watched
                .skipped
                .iter()
                .any(|file| file.rsplit_once('/').is_some_and(|(parent, _)| parent == directory));
            if !watched.changing.contains(&directory) && !has_skipped {
                continue;
            }
            match snapshot.pci.binary_search_by_key(&known.address, |function| function.address) {
                Ok(index) => snapshot.pci[index] = known.clone(),
                Err(index) => snapshot.pci.insert(index, known.clone()),
            }
        }
        let functions = snapshot.pci.iter().filter(|function| {
            function.class >> 16 == CLASS_NETWORK
                || snapshot.rdma_device(function.address).is_some()
        });
        state.functions = functions.map(|it| (it.address, it.clone())).collect();
    }

    /// A poisoned lock is harmless: each change is a single call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result, or the file that has taken too long.
fn wait<T>(
    result: &Receiver<T>,
    watched: &Watched,
    patience: Duration,
    began: Instant,
) -> Result<Result<T, String>, MachineError> {
    loop {
        match result.recv_timeout(patience / 4) {
            Ok(result) => return Ok(Ok(result)),
            Err(RecvTimeoutError::Disconnected) => return Err(MachineError::Thread),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut at = watched.lock();
        let is_late = began.elapsed() >= LIMIT;
        at.is_abandoned = is_late || at.since.elapsed() >= patience;
        if is_late {
            return Err(MachineError::Late { file: at.file.clone() });
        }
        if at.is_abandoned {
            return Ok(Err(at.file.clone()));
        }
    }
}

fn is_in(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadObserver for Watched {
    fn begins(&self, file: &str) -> bool {
        let parent = file.rsplit_once('/').map(|(parent, _)| parent);
        let is_changing = parent.is_some_and(|parent| self.changing.contains(parent));
        if is_changing || self.skipped.contains(file) {
            return false;
        }
        let mut at = self.lock();
        file.clone_into(&mut at.file);
        at.since = Instant::now();
        !at.is_abandoned
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.reads.lock().changing.remove(&self.directory);
    }
}

#[cfg(test)]
mod tests;
