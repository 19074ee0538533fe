//! Remembers which interfaces were uplinks in this boot, for publication and preparation. A default
//! route can be absent for a moment, for example while a DHCP lease is renewed; an interface that
//! moved into a pod then would take the node offline.

use node_files::boot_file::BootFile;
use process::chain::Chain;
use publication::network::{HostNics, NetworkFacts};
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
    pub fn new(host: &HostRoot, choice: HostNics) -> Self {
        let file: Option<BootFile<BTreeSet<u32>>> = BootFile::new(host, FILE, VERSION);
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

#[cfg(test)]
mod tests {
    use super::*;
    use publication::network::{DefaultRoute, Interface, Withheld};
    use std::collections::BTreeMap;
    use std::fs;

    /// Three interfaces; a default route leads through those with these indices.
    fn network(defaults: &[u32]) -> NetworkFacts {
        let interface = |index| Interface {
            index,
            name: format!("eth{index}"),
            parent: Some(format!("0000:0{index}:00.0")),
            ..Interface::default()
        };
        let route =
            |interface| DefaultRoute { ipv6: false, metric: 0, interface, advertised: false };
        NetworkFacts {
            interfaces: (2..5).map(interface).collect(),
            default_routes: defaults.iter().copied().map(route).collect(),
            ..NetworkFacts::default()
        }
    }

    fn choice(host: &[&str], pods: &[&str]) -> HostNics {
        let patterns = |all: &[&str]| all.iter().map(|it| it.parse().unwrap()).collect();
        HostNics { host: patterns(host), pods: patterns(pods) }
    }

    #[test]
    fn an_uplink_stays_one_in_its_boot() {
        let root = tempfile::tempdir().unwrap();
        let boot = root.path().join("proc/sys/kernel/random");
        fs::create_dir_all(&boot).unwrap();
        let set_boot = |id: &str| fs::write(boot.join("boot_id"), id).unwrap();
        set_boot("1b1c2d3e-0000-4000-8000-000000000001\n");
        let start = || Uplinks::new(&HostRoot::at(root.path()), HostNics::default());
        let uplinks = start();
        let is = |reason| BTreeMap::from([(2, reason)]);
        assert_eq!(uplinks.complete(network(&[2])).withheld(), is(Withheld::Uplink));
        let earlier = is(Withheld::EarlierUplink);
        assert_eq!(uplinks.complete(network(&[])).withheld(), earlier, "a lease is renewed");
        assert_eq!(start().complete(network(&[])).withheld(), earlier, "the driver restarts");
        set_boot("1b1c2d3e-0000-4000-8000-000000000002\n");
        assert!(start().complete(network(&[])).withheld().is_empty(), "after a reboot");
    }

    #[test]
    fn the_operator_chooses_nics_for_the_host_and_for_pods() {
        let uplinks = Uplinks::default();
        uplinks.lock().choice = choice(&["eth4"], &["eth2", "0000:03:00.0"]);
        // DHCP on all ports, with one metric.
        let facts = uplinks.complete(network(&[2, 3, 4]));
        assert_eq!(facts.withheld(), BTreeMap::from([(4, Withheld::Uplink)]));
        let facts = uplinks.complete(network(&[]));
        let withheld: Vec<_> = facts.withheld().into_iter().collect();
        assert_eq!(withheld, [(4, Withheld::EarlierUplink)]);
        let mut facts = uplinks.complete(network(&[2]));
        facts.to_server.insert(2);
        assert_eq!(facts.withheld().get(&2), Some(&Withheld::Uplink), "the API server is beyond");
        let unseen = Uplinks::default();
        unseen.lock().choice = choice(&["eth*"], &[]);
        let withheld = unseen.complete(network(&[])).withheld();
        assert_eq!(withheld.len(), 3);
        assert!(withheld.values().all(|reason| *reason == Withheld::Operator));
    }
}
