//! Carries decisions out: marks pods, lists them and removes their gates; or evicts them.

use super::Controller;
use crate::decide::Warning;
use crate::release::{self, GateRemoval, Refusal};
use crate::server::metrics::Outcome;
use crate::{Action, Decision, Group, Member, WaitingReason};
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::label;
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use process::chain::Chain;
use process::eviction::{Evicted, Trial, evict};
use process::requests::{ApiError, is_outdated, reading, writing};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// How many pods of a group are written concurrently.
const TOGETHER: usize = 32;

impl Controller {
    /// Carries a decision out. Returns why pods of the group are still waiting.
    pub(super) async fn apply(&self, decision: &Decision, group: &Group) -> Option<WaitingReason> {
        let done = match &decision.action {
            Action::Wait(why) => return Some(why.clone()),
            Action::Evict { pods } => {
                self.evict_all(group, pods).await.map(|()| Some(WaitingReason::Moving))
            }
            Action::Place { fabric, pods, domains, rest } => {
                let placed = self.place(group, fabric, pods, domains).await;
                placed.map(|gates| {
                    self.count(decision, group, gates);
                    rest.clone()
                })
            }
        };
        match done {
            Ok(why) => why,
            // Writes that succeeded are read back in the next round.
            Err(error) => {
                tracing::warn!(group = %group.key, error = %Chain(&error), "Failed to carry out a decision; trying again");
                None
            }
        }
    }

    fn count(&self, decision: &Decision, group: &Group, gates: usize) {
        if gates == 0 {
            return;
        }
        let metrics = &self.metrics;
        metrics.count_gates(gates);
        let is_new = !group.has_released();
        metrics.count(match decision.warning {
            _ if !is_new => Outcome::Joined,
            Some(Warning::OneByOne) => Outcome::OneByOne,
            Some(Warning::Late) => Outcome::Late,
            Some(Warning::Grows) => Outcome::Grows,
            None => Outcome::Whole,
        });
        if let Some(since) = group.waits_since().filter(|_| is_new) {
            metrics.observe_wait(self.view.now().duration_since(since).as_secs_f64());
        }
    }

    /// Performs the three steps of [`release`]. Returns the number of removed gates.
    async fn place(
        &self,
        group: &Group,
        fabric: &str,
        pods: &[String],
        domains: &BTreeMap<String, Vec<LevelDomain>>,
    ) -> Result<usize, ApiError> {
        let api = self.pods_of(group);
        let marks = release::unmarked(group, fabric, domains);
        self.patch_each(&api, &marks, |member| {
            let domains = domains.get(&member.name).map(Vec::as_slice);
            release::mark(member, fabric, domains.unwrap_or_default())
        })
        .await?;
        let selector = format!("{}={}", label::FABRIC_GROUP, group.key.label);
        let listed = api.list(&ListParams::default().labels(&selector)).await;
        let listed = listed.map_err(reading("Pods of group", &group.key.label))?.items;
        let wanted: BTreeSet<&str> = pods.iter().map(String::as_str).collect();
        let removals = {
            let view = self.view.read();
            release::gate_removals(&group.key, &listed, fabric, &wanted, |node| {
                view.node_label(node, label::NODE_FABRIC).map(str::to_owned)
            })
        };
        match removals {
            Ok(removals) => self.remove_gates(&api, group, fabric, &removals).await,
            Err(refusal) => {
                if matches!(refusal, Refusal::Elsewhere(_)) {
                    self.metrics.count_split();
                }
                tracing::info!(group = %group.key, fabric, ?refusal, "Gates not removed yet");
                Ok(0)
            }
        }
    }

    async fn remove_gates(
        &self,
        api: &Api<Pod>,
        group: &Group,
        fabric: &str,
        removals: &[GateRemoval],
    ) -> Result<usize, ApiError> {
        let written = stream::iter(removals)
            .map(|removal| strategic(api, &removal.pod, &removal.patch))
            .buffer_unordered(TOGETHER);
        let written: Vec<bool> = written.try_collect().await?;
        let gates = written.iter().filter(|done| **done).count();
        if gates > 0 {
            tracing::info!(group = %group.key, fabric, gates, "Removed gates");
        }
        Ok(gates)
    }

    /// Marks every released pod first, so that pods created meanwhile do not join them.
    /// Evicts them once all are marked.
    async fn evict_all(&self, group: &Group, pods: &[String]) -> Result<(), ApiError> {
        let api = self.pods_of(group);
        let going: Vec<_> =
            group.members.iter().filter(|member| pods.contains(&member.name)).collect();
        let unmarked: Vec<_> = going.iter().copied().filter(|member| !member.moves).collect();
        if !unmarked.is_empty() {
            self.metrics.count(Outcome::Evicted);
            tracing::info!(group = %group.key, pods = going.len(), "Evicting the group");
        }
        self.patch_each(&api, &unmarked, release::mark_evicted).await?;
        let evicted = stream::iter(&going)
            .map(|member| evict_member(&api, member))
            .buffer_unordered(TOGETHER);
        evicted.try_collect::<Vec<()>>().await.map(drop)
    }

    async fn patch_each(
        &self,
        api: &Api<Pod>,
        members: &[&Member],
        patch: impl Fn(&Member) -> Pod,
    ) -> Result<(), ApiError> {
        let written = stream::iter(members)
            .map(async |member| strategic(api, &member.name, &patch(member)).await)
            .buffer_unordered(TOGETHER);
        written.try_collect::<Vec<bool>>().await.map(drop)
    }

    fn pods_of(&self, group: &Group) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &group.key.namespace)
    }
}

async fn evict_member(api: &Api<Pod>, member: &Member) -> Result<(), ApiError> {
    let refused = evict(api, &member.name, &member.uid, Trial::No).await?;
    if let Evicted::NotYet(why) = refused {
        tracing::info!(pod = member.name, why, "Eviction refused for now");
    }
    Ok(())
}

/// Patches a pod. Returns false if the pod is gone or has changed since.
async fn strategic(
    api: &Api<Pod>,
    name: &str,
    patch: &(impl Serialize + Debug),
) -> Result<bool, ApiError> {
    match api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Ok(true),
        Err(error) if is_outdated(&error) => Ok(false),
        Err(error) => Err(writing("Pod", name)(error)),
    }
}
