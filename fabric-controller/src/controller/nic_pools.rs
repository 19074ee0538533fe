//! Deletes the addresses of deleted claims, and reports in each pool's status how many
//! addresses are taken.

use super::Controller;
use super::errors::{ApiError, reading, writing};
use crate::nic_pools::{HeldAddress, NicPools};
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
use serde_json::json;
use serve::readiness::Readiness;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often addresses are compared with the claims, in memory.
const PERIOD: Duration = Duration::from_secs(2);
/// Requests that are under way at a time.
const TOGETHER: usize = 8;

/// Pools and addresses from the watches.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<NicPools>>);

impl Watched {
    /// The lock is held only for a single change or read.
    fn lock(&self) -> MutexGuard<'_, NicPools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink<NicPool> for Watched {
    fn apply(&mut self, pool: NicPool) {
        self.lock().apply_pool(pool);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.lock().delete_pool(&key.name);
    }
}

impl Sink<NicAddress> for Watched {
    fn apply(&mut self, address: NicAddress) {
        self.lock().apply_address(address);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.lock().delete_address(&key.name);
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
            loop {
                self.free_addresses(&watched).await;
                self.write_statuses(&watched).await;
                tokio::time::sleep(PERIOD).await;
            }
        };
        futures::join!(pools, addresses, work);
    }

    async fn free_addresses(&self, watched: &Watched) {
        let gone = watched.lock().without_claim(&self.view.read());
        let free = async |(name, held): (String, HeldAddress)| {
            if let Err(error) = self.free_address(&name, &held).await {
                tracing::warn!(address = name, error = %Chain(&error), "Not freed; trying again");
            }
        };
        stream::iter(gone).map(free).buffer_unordered(TOGETHER).collect::<Vec<()>>().await;
    }

    /// Frees an address if its claim is gone according to the API server; the view may
    /// lag behind the driver that has taken the address. A claim exists before its
    /// address, so a claim that is absent now has been deleted.
    async fn free_address(&self, name: &str, held: &HeldAddress) -> Result<(), ApiError> {
        let claim = &held.spec.claim;
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        let found = claims.get_opt(&claim.name).await;
        let found = found.map_err(reading("ResourceClaim", &claim.name))?;
        if found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&claim.uid)) {
            return Ok(());
        }
        let addresses: Api<NicAddress> = Api::all(self.client.clone());
        let preconditions = Preconditions { uid: held.uid.clone(), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        match addresses.delete(name, &params).await {
            Ok(_) => tracing::info!(address = name, claim = claim.name, "Freed an address"),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
            Err(error) => return Err(writing("NicAddress", name)(error)),
        }
        Ok(())
    }

    async fn write_statuses(&self, watched: &Watched) {
        let due = watched.lock().due_statuses();
        let pools: Api<NicPool> = Api::all(self.client.clone());
        for (name, status) in due {
            if let Err(error) = write_status(&pools, &name, status).await {
                tracing::warn!(pool = name, error = %Chain(&error), "Status not written");
            }
        }
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
