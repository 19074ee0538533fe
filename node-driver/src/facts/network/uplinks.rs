//! Remembers which interfaces were uplinks in this boot, for publication and preparation. A default
//! route can be absent for a moment, for example while a DHCP lease is renewed; an interface that
//! moved into a pod then would take the node offline.

use super::{HostNics, NetworkFacts};
use crate::facts::boot_file::BootFile;
use process::chain::Chain;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use topology_graph::HostRoot;

/// The file below the runtime directory.
const FILE: &str = "uplinks.json";
/// The format version of that file.
const VERSION: u32 = 1;

/// The interfaces that were uplinks, by index, and the operator's choice. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Uplinks(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    seen: BTreeSet<u32>,
    choice: HostNics,
    file: Option<BootFile<BTreeSet<u32>>>,
}

impl Uplinks {
    /// Those that an earlier run has seen in this boot of the host.
    pub fn of(host: &HostRoot, choice: HostNics) -> Self {
        let file: Option<BootFile<BTreeSet<u32>>> = BootFile::of(host, FILE, VERSION);
        let seen = file.as_ref().and_then(BootFile::load).unwrap_or_default();
        Self(Arc::new(Mutex::new(State { seen, choice, file })))
    }

    /// Does not save what is seen from now on.
    #[must_use]
    pub fn unsaved(self) -> Self {
        self.lock().file = None;
        self
    }

    /// Adds the earlier uplinks and the operator's choice to facts about the host, and remembers
    /// the uplinks among them.
    #[must_use]
    pub fn complete(&self, mut network: NetworkFacts) -> NetworkFacts {
        let now = network.uplinks();
        let mut state = self.lock();
        network.earlier_uplinks.clone_from(&state.seen);
        network.choice.clone_from(&state.choice);
        if !now.is_subset(&state.seen) {
            state.seen.extend(now);
            if let Some(Err(error)) = state.file.as_ref().map(|file| file.store(&state.seen)) {
                tracing::warn!(error = %Chain(&error), "Uplinks not saved for a restart");
            }
        }
        network
    }

    /// A poisoned lock is harmless: the set only grows.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
