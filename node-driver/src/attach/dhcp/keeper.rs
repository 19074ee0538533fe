//! Leases of running pods: renewed in the pod's namespace for as long as the
//! driver holds it, given back when the claim is unprepared. While the driver is
//! away nobody renews.
//!
//! Whoever takes a lease over asks for the same address again (INIT-REBOOT, RFC
//! 2131 §3.2): the driver from the hook, or from the driver before it.

use super::{LOOK, Lease, LeaseError, Leases, config};
use crate::attach::AttachError;
use crate::attach::link::{add_address, by_name, del_address};
use crate::attach::netns::NetNs;
use crate::attach::record::AttachRecord;
use cluster_model::network_config::LinkName;
use futures::TryStreamExt;
use futures::future::join_all;
use mozim::{DhcpError, DhcpV4Client, DhcpV4Lease, DhcpV4State};
use netlink_packet_route::neighbour::{NeighbourMessage, NeighbourState};
use rtnetlink::Handle;
use serve::chain::Chain;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Longest that giving back may take: a lease ends by itself too.
const RELEASE: Duration = Duration::from_secs(1);
/// Between two beginnings after a failure.
const PAUSE: Duration = Duration::from_secs(5);

/// Who renews the leases of each claim, by its UID.
#[derive(Debug, Default)]
pub struct Keepers {
    all: Mutex<BTreeMap<String, Keeper>>,
}

#[derive(Debug)]
struct Keeper {
    stop: CancellationToken,
    thread: JoinHandle<()>,
}

/// The leases of one claim.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Where its interfaces are.
    pub namespace: Arc<NetNs>,
    /// What they have.
    pub leases: Leases,
    /// Where they are noted.
    pub record: PathBuf,
}

impl Keepers {
    /// Renews a claim's leases from now on. Those that are renewed already stay so:
    /// another sandbox begins with [`Keepers::release`].
    pub fn keep(&self, uid: &str, kept: Kept) -> Result<(), AttachError> {
        let is_kept = |keeper: &Keeper| !keeper.thread.is_finished();
        if kept.leases.is_empty() || self.lock().get(uid).is_some_and(is_kept) {
            return Ok(());
        }
        let stop = CancellationToken::new();
        let (namespace, told) = (Arc::clone(&kept.namespace), stop.clone());
        let thread = namespace.inhabit(async move |handle| keep_all(&handle, kept, &told).await)?;
        self.lock().insert(uid.to_owned(), Keeper { stop, thread });
        Ok(())
    }

    /// Gives a claim's leases back.
    pub fn release(&self, uid: &str) {
        let Some(Keeper { stop, thread }) = self.lock().remove(uid) else { return };
        stop.cancel();
        if thread.join().is_err() {
            tracing::warn!(uid, "Leases not given back");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Keeper>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_all(handle: &Handle, kept: Kept, stop: &CancellationToken) {
    let keep = |(name, lease): (&LinkName, &Lease)| {
        One { handle, name: name.clone(), lease: lease.clone(), kept: &kept }.live(stop)
    };
    join_all(kept.leases.iter().map(keep)).await;
}

/// One interface's lease.
struct One<'a> {
    handle: &'a Handle,
    name: LinkName,
    lease: Lease,
    kept: &'a Kept,
}

impl One<'_> {
    async fn live(mut self, stop: &CancellationToken) {
        loop {
            let Err(error) = self.renew(stop).await else { return };
            let link = self.name.as_str();
            tracing::warn!(link, error = %Chain(&error), "Lease not renewed");
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Until told to stop.
    async fn renew(&mut self, stop: &CancellationToken) -> Result<(), AttachError> {
        let gone = || AttachError::Gone { link: self.name.to_string() };
        let found = by_name(self.handle, self.name.as_str()).await?.ok_or_else(gone)?;
        let (name, index) = (self.name.clone(), found.header.index);
        let wrap = |source| LeaseError::Protocol { link: name.clone(), source };
        let mut given = self.lease.known();
        let config = config(&self.name, &found).map_err(wrap)?;
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

    /// The same address for another while, or another one.
    async fn take(&mut self, index: u32, lease: &DhcpV4Lease) -> Result<(), AttachError> {
        let lease = Lease::of(lease);
        let name = self.name.as_str();
        add_address(self.handle, name, index, &lease.address()).await?;
        if lease.prefix != self.lease.prefix {
            let (was, is) = (self.lease.prefix, lease.prefix);
            tracing::warn!(link = name, %was, %is, "The DHCP server gives another address");
            del_address(self.handle, name, index, was).await?;
            AttachRecord::note_lease(&self.kept.record, &self.name, &lease);
        }
        self.lease = lease;
        Ok(())
    }

    async fn give_back(&self, client: &mut DhcpV4Client, index: u32, lease: &DhcpV4Lease) {
        let link = self.name.as_str();
        let told = async {
            client.release(lease).await?;
            self.sent(index).await;
            Ok::<_, DhcpError>(())
        };
        match timeout(RELEASE, told).await {
            Ok(Ok(())) => tracing::debug!(link, "Lease given back"),
            Ok(Err(error)) => tracing::info!(link, %error, "Lease not given back"),
            Err(_) => tracing::info!(link, "Lease not given back in time"),
        }
    }

    /// Nobody answers a release, and one that waits for its neighbour's hardware
    /// address (`arp(7)`) is lost with the interface.
    async fn sent(&self, index: u32) {
        let mut look = interval(LOOK);
        loop {
            look.tick().await;
            let neighbors = self.handle.neighbours().get().execute();
            let waits = |neighbor: NeighbourMessage| async move {
                let of_link = neighbor.header.ifindex == index;
                of_link && neighbor.header.state == NeighbourState::Incomplete
            };
            if !neighbors.try_any(waits).await.unwrap_or(false) {
                return;
            }
        }
    }
}
