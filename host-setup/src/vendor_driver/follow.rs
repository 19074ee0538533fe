//! The driver's part where a vendor's NIC driver comes in a container: follows its state, and the
//! cluster's turns in which nodes are drained.

use super::state::{self, Grant, VendorDriverState};
use super::verdict::{VendorDriverDecision, VendorDriverFacts, decide};
use crate::args::VendorDriverArgs;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use node_files::boot_file::BootFile;
use process::chain::Chain;
use publication::nic::device_name;
use serve::lease::Lease;
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use topology_graph::{HostRoot, Snapshot};

/// The Lease whose holder is the node that is drained, or that loads a version for the first time. The
/// chart makes it.
const LEASE: &str = "dranet-vendor-driver";

/// Time after which another node's driver takes the Lease of one that is gone.
const LEASE_DURATION: Duration = Duration::from_mins(1);

/// Time between reads of the Node's labels until they select it. Node Feature Discovery labels a
/// new node some seconds after it has joined.
const LABELS_PERIOD: Duration = Duration::from_secs(10);

/// What is followed.
#[derive(Debug)]
pub(crate) struct VendorDriver {
    args: VendorDriverArgs,
    file: Option<BootFile<VendorDriverState>>,
    is_selected: Arc<AtomicBool>,
    turn: Turn,
    grant: GrantFile,
    /// Ends the task that reads labels.
    _labels: DropGuard,
}

impl VendorDriver {
    /// Starts to follow it; `None` where no node has one.
    pub(crate) async fn start(
        args: &VendorDriverArgs,
        (client, node): (&Client, &str),
        host: &HostRoot,
        wake: &Arc<Notify>,
    ) -> Option<Self> {
        if args.nodes.is_empty() {
            return None;
        }
        let labels = Labels { client: client.clone(), node: node.to_owned(), args: args.clone() };
        // Before the first publication: NICs are withheld from the beginning.
        let is_selected = Arc::new(AtomicBool::new(labels.select().await));
        let stop = CancellationToken::new();
        if !is_selected.load(Ordering::Relaxed) {
            let waiting = labels.wait(Arc::clone(&is_selected), Arc::clone(wake));
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(waiting).await });
        }
        let lease = Lease::new(client.clone(), client.default_namespace(), LEASE, LEASE_DURATION);
        Some(Self {
            args: args.clone(),
            file: state::file(host),
            is_selected,
            turn: Turn { lease, has: Arc::default(), wake: Arc::clone(wake), wanted: None },
            grant: GrantFile { file: state::grant_file(host), stored: None },
            _labels: stop.drop_guard(),
        })
    }

    /// Reads its state and decides; asks for a turn, or gives it back. Also returns the devices that it
    /// drives.
    pub(crate) fn look(
        &mut self,
        snapshot: &Snapshot,
        has_claims: bool,
    ) -> (VendorDriverDecision, BTreeSet<String>) {
        let facts = VendorDriverFacts {
            state: self.file.as_ref().and_then(BootFile::load),
            is_selected: self.is_selected.load(Ordering::Relaxed),
            has_claims,
            has_turn: self.turn.has.load(Ordering::Relaxed),
        };
        let decision = decide(&facts, self.args.drain);
        self.turn.set(decision.wants_turn);
        self.grant.set(decision.grants.as_deref().unwrap_or_default());
        (decision, self.devices(snapshot))
    }

    /// When the vendor's container has written its state last.
    pub(crate) fn stamp(&self) -> impl Fn() -> Option<SystemTime> + Send + 'static {
        let file = self.file.clone();
        move || file.as_ref().and_then(BootFile::stamp)
    }

    /// The devices that it drives.
    fn devices(&self, snapshot: &Snapshot) -> BTreeSet<String> {
        let own = snapshot.pci.iter().filter(|it| it.vendor == self.args.pci_vendor.0);
        own.map(|function| device_name(function.address)).collect()
    }
}

/// Tells the vendor's container that it is the node's turn.
#[derive(Debug)]
struct GrantFile {
    file: Option<BootFile<Grant>>,
    /// What this process wrote last; an earlier one may have left a grant.
    stored: Option<Grant>,
}

impl GrantFile {
    /// Grants a version; none if it is empty.
    fn set(&mut self, version: &str) {
        let Some(file) = &self.file else { return };
        let grant = Grant { version: version.to_owned() };
        if self.stored.as_ref() == Some(&grant) {
            return;
        }
        match file.store(&grant) {
            Ok(()) => self.stored = Some(grant),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "Failed to record the node's turn");
            }
        }
    }
}

/// The node's labels.
struct Labels {
    client: Client,
    node: String,
    args: VendorDriverArgs,
}

impl Labels {
    /// Whether they select the node. If they cannot be read, it counts as selected: its NICs are
    /// published a little later, and not before the vendor's driver replaces theirs.
    async fn select(&self) -> bool {
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.get_metadata(&self.node).await {
            Ok(node) => {
                let labels = node.metadata.labels.unwrap_or_default();
                self.args.nodes.iter().any(|it| it.select(&labels))
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "Failed to read the labels of the node");
                true
            }
        }
    }

    async fn wait(self, is_selected: Arc<AtomicBool>, wake: Arc<Notify>) {
        loop {
            sleep(LABELS_PERIOD).await;
            if self.select().await {
                is_selected.store(true, Ordering::Relaxed);
                wake.notify_one();
                return;
            }
        }
    }
}

/// The right to evict the pods of this node, or to load a version for the first time, which one node
/// of the cluster has at a time.
#[derive(Debug)]
struct Turn {
    lease: Lease,
    has: Arc<AtomicBool>,
    wake: Arc<Notify>,
    /// Gives it back when dropped.
    wanted: Option<DropGuard>,
}

/// Notes that the turn is over, also when the Lease is lost.
struct Holding {
    has: Arc<AtomicBool>,
    wake: Arc<Notify>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.has.store(false, Ordering::Relaxed);
        self.wake.notify_one();
    }
}

impl Turn {
    fn set(&mut self, is_wanted: bool) {
        if !is_wanted {
            self.wanted = None;
        } else if self.wanted.is_none() {
            let stop = CancellationToken::new();
            self.wanted = Some(stop.clone().drop_guard());
            let (lease, has, wake) =
                (self.lease.clone(), Arc::clone(&self.has), Arc::clone(&self.wake));
            tokio::spawn(async move {
                lease
                    .lead(stop, || async {
                        has.store(true, Ordering::Relaxed);
                        wake.notify_one();
                        let _holding = Holding { has: Arc::clone(&has), wake: Arc::clone(&wake) };
                        pending::<()>().await;
                    })
                    .await;
            });
        }
    }
}
