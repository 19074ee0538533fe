//! Decisions carried out: marks, then a list, then gates; or a move.

use crate::gang::decide::Warning;
use crate::gang::release::{self, Lift, Refusal};
use crate::gang::{Decision, Group, Member, Step, Why};
use crate::leader::{Leader, LeaderError, reading, writing};
use crate::server::gang_metrics::Chosen;
use cluster_model::names::label;
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, Preconditions};
use process::chain::Chain;
use serde_json::Value;
use std::collections::BTreeSet;

const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;
const TOO_MANY: u16 = 429;

/// Pods of a group that are written at a time.
const TOGETHER: usize = 32;

impl Leader {
    /// Carries a decision out. Why pods of the group wait still.
    pub(super) async fn act(&self, decision: &Decision, group: &Group) -> Option<Why> {
        let done = match &decision.step {
            Step::Wait(why) => return Some(why.clone()),
            Step::Move { pods } => self.move_away(group, pods).await.map(|()| Some(Why::Moving)),
            Step::Place { fabric, pods, rest } => {
                let placed = self.place(group, fabric, pods).await;
                placed.map(|gates| {
                    self.count(decision, group, gates);
                    rest.clone()
                })
            }
        };
        match done {
            Ok(why) => why,
            // Whatever was written is read back at the next look.
            Err(error) => {
                tracing::warn!(group = %group.key, error = %Chain(&error), "Trying again");
                None
            }
        }
    }

    fn count(&self, decision: &Decision, group: &Group, gates: usize) {
        if gates == 0 {
            return;
        }
        let metrics = &self.metrics.gangs;
        metrics.count_gates(gates);
        let is_new = group.released().next().is_none();
        metrics.count(match decision.warning {
            _ if !is_new => Chosen::Joined,
            Some(Warning::OneByOne) => Chosen::OneByOne,
            Some(Warning::Late) => Chosen::Late,
            None => Chosen::Whole,
        });
        let since = group.held().map(|member| member.created).min().filter(|_| is_new);
        if let Some(since) = since {
            metrics.observe_wait(Timestamp::now().duration_since(since).as_secs_f64());
        }
    }

    /// The three steps of [`release`]. How many gates were lifted.
    async fn place(
        &self,
        group: &Group,
        fabric: &str,
        pods: &[String],
    ) -> Result<usize, LeaderError> {
        let api = self.pods_of(group);
        let marks = release::unmarked(group, fabric);
        self.patch_each(&api, &marks, |member| release::mark(member, fabric)).await?;
        let selector = format!("{}={}", label::FABRIC_GROUP, group.key.label);
        let listed = api.list(&ListParams::default().labels(&selector)).await;
        let listed = listed.map_err(reading("Pods of group", &group.key.label))?.items;
        let wanted: BTreeSet<&str> = pods.iter().map(String::as_str).collect();
        let lifts = {
            let view = self.templates.view.read();
            let fabric_of = |node: &str| {
                let node = view.inventory().node(node)?;
                node.labels.get(label::NODE_FABRIC).map(ToString::to_string)
            };
            release::lifts(&group.key, &listed, fabric, &wanted, fabric_of)
        };
        match lifts {
            Ok(lifts) => self.lift(&api, group, fabric, &lifts).await,
            Err(refusal) => {
                if matches!(refusal, Refusal::Elsewhere(_)) {
                    self.metrics.gangs.count_split();
                }
                tracing::info!(group = %group.key, fabric, ?refusal, "No gate lifted yet");
                Ok(0)
            }
        }
    }

    async fn lift(
        &self,
        api: &Api<Pod>,
        group: &Group,
        fabric: &str,
        lifts: &[Lift],
    ) -> Result<usize, LeaderError> {
        let write = async |lift: &Lift| strategic(api, &lift.pod, &lift.patch).await;
        let written: Vec<bool> =
            stream::iter(lifts).map(write).buffer_unordered(TOGETHER).try_collect().await?;
        let gates = written.iter().filter(|done| **done).count();
        if gates > 0 {
            tracing::info!(group = %group.key, fabric, gates, "Gates lifted");
        }
        Ok(gates)
    }

    /// Marks every released pod first, so that none that comes meanwhile joins
    /// them, and evicts them when all are marked.
    async fn move_away(&self, group: &Group, pods: &[String]) -> Result<(), LeaderError> {
        let api = self.pods_of(group);
        let going: Vec<_> =
            group.members.iter().filter(|member| pods.contains(&member.name)).collect();
        let unmarked: Vec<_> = going.iter().copied().filter(|member| !member.moves).collect();
        if !unmarked.is_empty() {
            self.metrics.gangs.count(Chosen::Moved);
            tracing::info!(group = %group.key, pods = going.len(), "Group moves");
        }
        self.patch_each(&api, &unmarked, release::move_away).await?;
        let evict = async |member: &&Member| evict(&api, member).await;
        stream::iter(&going).map(evict).buffer_unordered(TOGETHER).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn patch_each(
        &self,
        api: &Api<Pod>,
        members: &[&Member],
        patch: impl Fn(&Member) -> Value,
    ) -> Result<(), LeaderError> {
        let write = async |member: &&Member| strategic(api, &member.name, &patch(member)).await;
        let written = stream::iter(members).map(write).buffer_unordered(TOGETHER);
        written.try_collect::<Vec<bool>>().await.map(drop)
    }

    fn pods_of(&self, group: &Group) -> Api<Pod> {
        Api::namespaced(self.templates.client.clone(), &group.key.namespace)
    }
}

/// False where the pod is gone, or has been written since.
async fn strategic(api: &Api<Pod>, name: &str, patch: &Value) -> Result<bool, LeaderError> {
    match api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, CONFLICT | NOT_FOUND) => Ok(false),
        Err(error) => Err(writing("Pod", name)(error)),
    }
}

/// By the eviction API, which keeps to disruption budgets.
async fn evict(api: &Api<Pod>, member: &Member) -> Result<(), LeaderError> {
    let preconditions = Preconditions { uid: Some(member.uid.clone()), resource_version: None };
    let params = EvictParams {
        delete_options: Some(DeleteParams::default().preconditions(preconditions)),
        ..EvictParams::default()
    };
    match api.evict(&member.name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, CONFLICT | NOT_FOUND) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == TOO_MANY => {
            tracing::info!(pod = member.name, why = status.message, "Not evicted yet");
            Ok(())
        }
        Err(error) => Err(writing("Eviction of Pod", &member.name)(error)),
    }
}
