//! The writes of a preemption. Each is conditional, so that a write that comes too late changes nothing but for
//! an eviction, which `serve::lease` keeps a replica from after its lease.

use super::Controller;
use super::look::Looked;
use super::memory::Memory;
use crate::PlacedClaim;
use crate::protocol::allocation::{FINALIZER, allocation_of};
use crate::protocol::record::Begun;
use crate::protocol::step::{Next, VictimSeen, Write};
use cluster_model::names::label;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use process::eviction::{Evicted, Trial, evict};
use process::requests::{ApiError, is_outdated, reading, writing};
use serde_json::json;
use std::time::Instant;

const RULE: &str = "DeviceTaintRule";
const CLAIM: &str = "ResourceClaim";

impl Controller {
    /// All rules of this program, directly from the API server.
    pub(super) async fn list_rules(&self) -> Result<Vec<DeviceTaintRule>, ApiError> {
        let ours = ListParams::default().labels(label::PREEMPTION);
        let listed = self.rules().list(&ours).await;
        Ok(listed.map_err(reading(RULE, "all"))?.items)
    }

    /// Creates the rules of a preemption, the head last.
    pub(super) async fn create_rules(&self, rules: &[DeviceTaintRule]) -> Result<(), ApiError> {
        for rule in rules {
            let name = rule.metadata.name.as_deref().unwrap_or_default();
            let created = self.rules().create(&PostParams::default(), rule).await;
            created.map_err(writing(RULE, name))?;
        }
        Ok(())
    }

    /// Removes rules in this order.
    pub(super) async fn remove_rules(&self, names: &[String]) -> Result<(), ApiError> {
        for name in names {
            match self.rules().delete(name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(error) if is_outdated(&error) => {}
                Err(error) => return Err(writing(RULE, name)(error)),
            }
        }
        Ok(())
    }

    fn rules(&self) -> Api<DeviceTaintRule> {
        Api::all(self.client.clone())
    }

    /// Makes the writes of a step, unless budgets or the rate forbid evictions for now.
    pub(super) async fn write(
        &self,
        begun: &Begun,
        next: &Next,
        looked: &Looked,
        memory: &mut Memory,
    ) -> Result<(), ApiError> {
        let victims: Vec<usize> = next.writes.iter().filter_map(Write::victim).collect();
        if !victims.is_empty() {
            self.evict(begun, &victims, looked, memory).await?;
        }
        for pod in next.writes.iter().filter_map(Write::pod) {
            for claim in looked.claims.get(pod).into_iter().flatten() {
                self.allocate(claim).await?;
            }
        }
        Ok(())
    }

    /// Evicts pods in this order, until a budget refuses one. None is evicted before the API server has
    /// said that it would evict each.
    async fn evict(
        &self,
        begun: &Begun,
        victims: &[usize],
        looked: &Looked,
        memory: &mut Memory,
    ) -> Result<(), ApiError> {
        if !memory.may_try(&begun.id, Instant::now()) {
            return Ok(());
        }
        let is_first = !looked.seen.victims.iter().any(|it| *it != VictimSeen::Runs);
        let trials = if is_first { &[Trial::Yes, Trial::No][..] } else { &[Trial::No] };
        for trial in trials {
            for victim in victims {
                let pod = &begun.record.victims[*victim];
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
                if *trial == Trial::No {
                    // Before it leaves: if this program ends now, the next replica does not know
                    // whether the pod was told.
                    self.report_evicted(begun, pod).await;
                }
                match evict(&api, &pod.name, &pod.uid, *trial).await? {
                    Evicted::NotYet(why) => {
                        tracing::info!(pod = %pod.key(), why, "Eviction refused for now");
                        memory.refused(&begun.id, Instant::now());
                        return Ok(());
                    }
                    Evicted::Done if *trial == Trial::No => {
                        tracing::info!(pod = %pod.key(), preemption = begun.id, "Evicted a pod");
                        self.metrics.count_evicted(begun.record.moves);
                    }
                    Evicted::Done | Evicted::Gone => {}
                }
            }
        }
        Ok(())
    }

    /// Writes the devices into a claim that has none yet.
    async fn allocate(&self, placed: &PlacedClaim) -> Result<(), ApiError> {
        let name = &placed.claim.name;
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &placed.claim.namespace);
        let found = api.get_opt(name).await.map_err(reading(CLAIM, name))?;
        let Some(claim) = found.filter(is_open) else { return Ok(()) };
        let params = PatchParams::default();
        // kube-scheduler writes the finalizer first, too: the status has no part in metadata.
        let Some(claim) = written(api.patch(name, &params, &protected(&claim)).await, name)? else {
            return Ok(());
        };
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let allocation = allocation_of(&placed.allocation, uid, self.view.now());
        let patch = Patch::Merge(json!({
            "metadata": { "uid": uid, "resourceVersion": claim.metadata.resource_version },
            "status": { "allocation": allocation },
        }));
        if written(api.patch_status(name, &params, &patch).await, name)?.is_some() {
            tracing::info!(claim = %placed.claim, "Allocated a claim");
        }
        Ok(())
    }
}

/// The claim, or nothing if it has changed since it was read.
fn written(
    result: kube::Result<ResourceClaim>,
    name: &str,
) -> Result<Option<ResourceClaim>, ApiError> {
    match result {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if is_outdated(&error) => Ok(None),
        Err(error) => Err(writing(CLAIM, name)(error)),
    }
}

fn is_open(claim: &ResourceClaim) -> bool {
    let status = claim.status.as_ref();
    claim.metadata.deletion_timestamp.is_none()
        && status.is_none_or(|status| status.allocation.is_none())
}

/// The patch that keeps an allocated claim from being deleted.
fn protected(claim: &ResourceClaim) -> Patch<serde_json::Value> {
    let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|it| it == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    Patch::Merge(json!({ "metadata": {
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
        "finalizers": finalizers,
    } }))
}
