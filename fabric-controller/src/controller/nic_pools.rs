//! Deletes the addresses that their claims do not hold, and reports in each pool's status how many
//! addresses are taken.

use super::{Controller, PAUSE, next_pause};
use crate::nic_pools::{DoubtfulAddress, NicPools};
use cluster_model::names::is_subdomain;
use cluster_model::nic_pool::{NicAddress, NicPool, NicPoolStatus};
use cluster_model::view::ObjectKey;
use cluster_model::watch::{Sink, follow_into};
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use process::chain::Chain;
use process::requests::{ApiError, is_outdated, reading, writing};
use serde_json::json;
use serve::readiness::Readiness;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The number of concurrent requests.
const TOGETHER: usize = 8;

/// Pools and addresses from the watches.
#[derive(Clone, Default)]
struct Watched(Arc<Objects>);

#[derive(Default)]
struct Objects {
    pools: Mutex<NicPools>,
    changed: Notify,
}

impl Watched {
    /// The lock is held only for a single change or read.
    fn lock(&self) -> MutexGuard<'_, NicPools> {
        self.0.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut NicPools)) {
        change(&mut self.lock());
        self.0.changed.notify_one();
    }
}

impl Sink<NicPool> for Watched {
    fn apply(&mut self, pool: NicPool) {
        self.change(|pools| pools.apply_pool(pool));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.change(|pools| pools.delete_pool(&key.name));
    }
}

impl Sink<NicAddress> for Watched {
    fn apply(&mut self, address: NicAddress) {
        self.change(|pools| pools.apply_address(address));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.change(|pools| pools.delete_address(&key.name));
    }
}

impl Controller {
    /// Works without end.
    pub(super) async fn keep_nic_pools(&self) {
        let (watched, listed) = (Watched::default(), Readiness::default());
        let pools = follow_into(
            Api::<NicPool>::all(self.client.clone()),
            watcher::Config::default(),
            watched.clone(),
            listed.wait_for("nicpools"),
        );
        let addresses = follow_into(
            Api::<NicAddress>::all(self.client.clone()),
            watcher::Config::default(),
            watched.clone(),
            listed.wait_for("nicaddresses"),
        );
        let work = async {
            listed.ready().await;
            let mut pause = PAUSE;
            loop {
                let seen = self.view.read().revision();
                let freed = self.free_addresses(&watched).await;
                let written = self.write_statuses(&watched).await;
                pause = next_pause(pause, freed && written);
                tokio::time::sleep(pause).await;
                if freed && written {
                    tokio::select! {
                        () = self.view.changed_since(seen, |now| now.claims) => {}
                        () = watched.0.changed.notified() => {}
                    }
                }
            }
        };
        futures::join!(pools, addresses, work);
    }

    /// Frees the addresses that their claims do not hold. Returns false if any request failed.
    async fn free_addresses(&self, watched: &Watched) -> bool {
        let doubtful = watched.lock().doubtful(&self.view.read());
        let freed = stream::iter(doubtful)
            .map(|doubtful| self.try_to_free(watched, doubtful))
            .buffer_unordered(TOGETHER);
        freed.fold(true, async |all, freed| all && freed).await
    }

    /// Returns false if a request failed.
    async fn try_to_free(&self, watched: &Watched, doubtful: DoubtfulAddress) -> bool {
        let freed = self.free_address(watched, &doubtful).await;
        if let Err(error) = &freed {
            let address = doubtful.name;
            tracing::warn!(address, error = %Chain(error), "Not freed; trying again");
        }
        freed.is_ok()
    }

    /// Frees an address if its claim does not hold it according to the API server; the view may
    /// lag behind the driver that has taken the address. A claim exists, and is allocated to the
    /// driver's node, before the driver takes an address for it.
    async fn free_address(
        &self,
        watched: &Watched,
        doubtful: &DoubtfulAddress,
    ) -> Result<(), ApiError> {
        let (name, claim) = (&doubtful.name, &doubtful.held.spec.claim);
        // What a node has written may be no name, and becomes a part of a URL.
        let found = if is_subdomain(&claim.namespace) && is_subdomain(&claim.name) {
            let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
            let found = claims.get_opt(&claim.name).await;
            found.map_err(reading("ResourceClaim", &claim.name))?
        } else {
            None
        };
        if let Some(found) = found.filter(|found| doubtful.is_held_by(found)) {
            let status = found.status.as_ref();
            let is_allocated = status.is_some_and(|status| status.allocation.is_some());
            watched.lock().confirm(doubtful, is_allocated);
            return Ok(());
        }
        let addresses: Api<NicAddress> = Api::all(self.client.clone());
        let uid = doubtful.held.uid.clone();
        let preconditions = Preconditions { uid, resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        match addresses.delete(name, &params).await {
            Ok(_) => tracing::info!(address = name, claim = claim.name, "Freed an address"),
            Err(error) if is_outdated(&error) => {}
            Err(error) => return Err(writing("NicAddress", name)(error)),
        }
        Ok(())
    }

    /// Writes the due statuses. Returns false if any request failed.
    async fn write_statuses(&self, watched: &Watched) -> bool {
        let due = watched.lock().due_statuses();
        let pools: Api<NicPool> = Api::all(self.client.clone());
        let mut all_written = true;
        for (name, status) in due {
            if let Err(error) = write_status(&pools, &name, status).await {
                tracing::warn!(pool = name, error = %Chain(&error), "Status not written; trying again");
                all_written = false;
            }
        }
        all_written
    }
}

async fn write_status(
    pools: &Api<NicPool>,
    name: &str,
    status: NicPoolStatus,
) -> Result<(), ApiError> {
    let patch = Patch::Merge(json!({"status": status}));
    match pools.patch_status(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(writing("NicPool", name)(error)),
    }
}
