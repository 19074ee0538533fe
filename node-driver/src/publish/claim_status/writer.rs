//! Writes claim statuses by server-side apply: the writes of one claim in order, skipping
//! all but the newest.
//!
//! Preparation does not wait for it: a pod runs even if its status could not be written.
//! It needs the permissions `get` on `resourceclaims`, `patch` on `resourceclaims/status`
//! and `associated-node:patch` on `resourceclaims/driver` for this driver's name.

use super::{Progress, render};
use crate::model::claim::ClaimRef;
use crate::model::plan::Plan;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::interval;

/// Attempts, and the pause between them.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Writes the statuses of one driver's devices. Clones share the queue.
#[derive(Clone)]
pub(crate) struct StatusWriter {
    client: Client,
    driver: String,
    due: Arc<Mutex<Due>>,
}

/// The next write per claim UID. An entry exists while a task writes for the claim.
type Due = BTreeMap<String, Option<(Plan, Progress)>>;

impl StatusWriter {
    /// Writes as this driver.
    pub(crate) fn new(client: Client, driver: &str) -> Self {
        Self { client, driver: driver.to_owned(), due: Arc::default() }
    }

    /// Queues a write.
    pub(crate) fn publish(&self, plan: Plan, progress: Progress) {
        let claim = plan.claim.clone();
        let is_written = self.due().insert(claim.uid.clone(), Some((plan, progress))).is_some();
        if !is_written {
            let writer = self.clone();
            tokio::spawn(async move { writer.write_all(&claim).await });
        }
    }

    async fn write_all(&self, claim: &ClaimRef) {
        while let Some((plan, progress)) = self.take(&claim.uid) {
            self.write(&plan, progress).await;
        }
    }

    /// Takes the next write; removes the entry if there is none.
    fn take(&self, uid: &str) -> Option<(Plan, Progress)> {
        let mut due = self.due();
        let next = due.get_mut(uid).and_then(Option::take);
        if next.is_none() {
            due.remove(uid);
        }
        next
    }

    fn has_newer(&self, uid: &str) -> bool {
        self.due().get(uid).is_some_and(Option::is_some)
    }

    /// Writes a status. Retries until it succeeds, fails too often, or is superseded.
    async fn write(&self, plan: &Plan, progress: Progress) {
        let claim = &plan.claim;
        let mut pause = interval(PAUSE);
        for left in (0..TRIES).rev() {
            pause.tick().await;
            match self.try_write(plan, progress).await {
                Ok(()) => return,
                // The claim is gone or was created again, so there is nothing to write.
                Err(kube::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => return,
                Err(error) if left == 0 => {
                    tracing::warn!(%claim, %error, "Failed to write a claim status");
                }
                Err(_) if self.has_newer(&claim.uid) => return,
                Err(_) => {}
            }
        }
    }

    async fn try_write(&self, plan: &Plan, progress: Progress) -> kube::Result<()> {
        let claims: Api<ResourceClaim> =
            Api::namespaced(self.client.clone(), &plan.claim.namespace);
        let name = &plan.claim.name;
        let mut status = render(plan, &self.driver, progress, Timestamp::now());
        // A restarted container or driver may find the status already written.
        if progress == Progress::Attached && is_said(&claims.get(name).await?, &mut status) {
            return Ok(());
        }
        let params = PatchParams::apply(&self.driver).force();
        claims.patch_status(name, &params, &Patch::Apply(&status)).await.map(drop)
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the claim already has this status. A condition that is unchanged keeps its
/// transition time.
fn is_said(claim: &ResourceClaim, status: &mut Value) -> bool {
    let said = claim.status.as_ref().and_then(|status| status.devices.as_ref());
    let said = json!(said.map(Vec::as_slice).unwrap_or_default());
    let said = said.as_array().map(Vec::as_slice).unwrap_or_default();
    let entries = status["status"]["devices"].as_array_mut().into_iter().flatten();
    let mut is_all_said = true;
    for entry in entries {
        let Some(before) = said.iter().find(|said| {
            ["driver", "pool", "device", "shareID"]
                .iter()
                .all(|key| said.get(key) == entry.get(key))
        }) else {
            is_all_said = false;
            continue;
        };
        keep_times(before, entry);
        is_all_said &= before == entry;
    }
    is_all_said
}

fn keep_times(before: &Value, entry: &mut Value) {
    let before = before["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for condition in entry["conditions"].as_array_mut().into_iter().flatten() {
        let same = before
            .iter()
            .find(|it| it["type"] == condition["type"] && it["status"] == condition["status"]);
        if let Some(same) = same {
            condition["lastTransitionTime"] = same["lastTransitionTime"].clone();
        }
    }
}

#[cfg(test)]
mod tests;
