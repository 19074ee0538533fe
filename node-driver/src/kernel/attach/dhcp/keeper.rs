//! Keeps the leases of running pods: renews them in the pod's namespace while the driver
//! holds it, and releases them when the claim is unprepared. While the driver is not
//! running, nobody renews.
//!
//! Whoever takes a lease over (the driver from the hook, or from an earlier driver)
//! requests the same address again (INIT-REBOOT, RFC 2131 §3.2).

mod changes;
mod exchange;

use super::{LOOK, Lease, LeaseError, Leases, config};
use crate::kernel::attach::AttachError;
use crate::kernel::attach::identity::in_pod;
use crate::kernel::attach::known::Indices;
use crate::kernel::attach::link::all;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::record::AttachRecord;
use crate::model::plan::PlannedLink;
use changes::Changes;
use exchange::exchange;
use futures::TryStreamExt;
use futures::future::join_all;
use mozim::{DhcpError, DhcpV4Client, DhcpV4Lease, DhcpV4State};
use netlink_packet_route::neighbour::NeighbourState;
use process::chain::Chain;
use rtnetlink::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longest time for a release. A lease also ends by itself, and a release delays all
/// other claims.
const RELEASE: Duration = Duration::from_millis(500);
/// Pause before a new attempt after a failure.
const PAUSE: Duration = Duration::from_secs(5);

/// The keepers of all claims, by claim UID.
#[derive(Debug, Default)]
pub struct Keepers {
    all: Mutex<BTreeMap<String, Keeper>>,
    changes: Arc<Changes>,
}

#[derive(Debug)]
struct Keeper {
    stop: CancellationToken,
    thread: JoinHandle<()>,
}

/// The leases of one claim.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its UID.
    pub uid: String,
    /// The namespace that its interfaces are in.
    pub namespace: Arc<NetNs>,
    /// Its interfaces.
    pub links: Vec<PlannedLink>,
    /// The interfaces' indices in that namespace.
    pub indices: Indices,
    /// Their leases.
    pub leases: Leases,
    /// The attach record in which they are stored.
    pub record: PathBuf,
}

impl Keepers {
    /// Renews a claim's leases from now on. Leases that are already being renewed are
    /// left alone: for another sandbox, call [`Keepers::release`] first.
    pub fn keep(&self, kept: Kept) -> Result<(), AttachError> {
        let is_kept = self.lock().get(&kept.uid).is_some_and(|it| !it.thread.is_finished());
        if kept.leases.is_empty() || is_kept {
            return Ok(());
        }
        let stop = CancellationToken::new();
        let (uid, namespace) = (kept.uid.clone(), Arc::clone(&kept.namespace));
        let (told, changes) = (stop.clone(), Arc::clone(&self.changes));
        let thread = namespace.inhabit(async move |handle| {
            keep_all(&handle, &kept, &changes, &told).await;
        })?;
        self.lock().insert(uid, Keeper { stop, thread });
        Ok(())
    }

    /// Waits until addresses of claims have changed; returns those claims.
    pub async fn changed(&self) -> BTreeSet<String> {
        self.changes.next().await
    }

    /// Releases a claim's leases.
    pub fn release(&self, uid: &str) {
        let Some(Keeper { stop, thread }) = self.lock().remove(uid) else { return };
        stop.cancel();
        if thread.join().is_err() {
            tracing::warn!(uid, "Leases not released");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Keeper>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_all(handle: &Handle, kept: &Kept, changes: &Changes, stop: &CancellationToken) {
    let lives = kept.links.iter().filter_map(|link| {
        let lease = kept.leases.get(&link.name)?.clone();
        Some(One { handle, link, lease, kept, changes }.live(stop))
    });
    join_all(lives).await;
}

/// One interface's lease.
struct One<'a> {
    handle: &'a Handle,
    link: &'a PlannedLink,
    lease: Lease,
    kept: &'a Kept,
    changes: &'a Changes,
}

impl One<'_> {
    async fn live(mut self, stop: &CancellationToken) {
        loop {
            let Err(error) = self.renew(stop).await else { return };
            let link = self.link.name.as_str();
            tracing::warn!(link, error = %Chain(&error), "Lease not renewed");
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Renews until told to stop.
    async fn renew(&mut self, stop: &CancellationToken) -> Result<(), AttachError> {
        let PlannedLink { name, .. } = self.link;
        let all = all(self.handle).await?;
        let found = in_pod(&all, self.link, &self.kept.indices)
            .ok_or_else(|| AttachError::Gone { link: name.to_string() })?;
        let index = found.header.index;
        let wrap = |source| LeaseError::Protocol { link: name.clone(), source };
        let mut given = self.lease.known();
        let config = config(found).map_err(wrap)?;
        let mut client = DhcpV4Client::init(config, Some(given.clone())).await.map_err(wrap)?;
        loop {
            tokio::select! {
                state = client.run() => if let DhcpV4State::Done(lease) = state.map_err(wrap)? {
                    self.take(index, &lease).await?;
                    given = *lease;
                },
                () = stop.cancelled() => {
                    self.give_back(&mut client, index, &given).await;
                    return Ok(());
                }
            }
        }
    }

    /// Applies a renewed lease, which may have another address.
    async fn take(&mut self, index: u32, given: &DhcpV4Lease) -> Result<(), AttachError> {
        let lease = Lease::new(given).checked(&self.link.name)?;
        exchange(self.handle, self.link, index, [&self.lease, &lease]).await?;
        if lease == self.lease {
            return Ok(());
        }
        AttachRecord::note_lease(&self.kept.record, &self.link.name, &lease);
        let before = mem::replace(&mut self.lease, lease);
        let (was, is) = (before.prefix, self.lease.prefix);
        if was != is {
            let link = self.link.name.as_str();
            tracing::warn!(link, %was, %is, "The DHCP server assigned another address");
            self.changes.add(&self.kept.uid);
        }
        Ok(())
    }

    async fn give_back(&self, client: &mut DhcpV4Client, index: u32, lease: &DhcpV4Lease) {
        let link = self.link.name.as_str();
        let told = async {
            client.release(lease).await?;
            self.sent(index).await;
            Ok::<_, DhcpError>(())
        };
        match timeout(RELEASE, told).await {
            Ok(Ok(())) => tracing::debug!(link, "Lease released"),
            Ok(Err(error)) => tracing::info!(link, %error, "Lease not released"),
            Err(_) => tracing::info!(link, "Lease not released in time"),
        }
    }

    /// Waits until the release has been sent. It is not answered, and a packet that still
    /// waits for the next hop's hardware address (`arp(7)`) is lost with the interface.
    async fn sent(&self, index: u32) {
        let mut look = interval(LOOK);
        loop {
            look.tick().await;
            let neighbors = self.handle.neighbours().get().execute();
            let waiting = neighbors.try_any(|neighbor| async move {
                let of_link = neighbor.header.ifindex == index;
                of_link && neighbor.header.state == NeighbourState::Incomplete
            });
            if !waiting.await.unwrap_or(false) {
                return;
            }
        }
    }
}
