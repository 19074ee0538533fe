//! Writes the `PodGroup`s of groups that kube-scheduler places.

use super::report::Reporter;
use super::watch::Objects;
use super::{Controller, RoundOutcome};
use crate::group::{Group, GroupKey};
use crate::pod_groups::{PodGroupWrite, due, has_constraint, waiting};
use crate::{WaitingReason, server::metrics::Outcome};
use cluster_model::names::pod_group;
use futures::{StreamExt, stream};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use process::chain::Chain;
use process::requests::{ApiError, is_outdated, writing};
use serde_json::json;
use std::collections::BTreeMap;

/// How many `PodGroup`s are written concurrently.
const TOGETHER: usize = 8;

/// The outcome of a write.
enum WriteOutcome {
    /// Done, or obsolete because the object has changed since.
    Done,
    /// A `PodGroup` was created for the group.
    Created,
    /// Not created, because the API server would drop the constraint.
    ConstraintDropped,
}

impl Controller {
    /// Makes the due writes.
    pub(super) async fn write_pod_groups(
        &self,
        groups: &BTreeMap<&GroupKey, &Group>,
        objects: &Objects,
        reporter: &mut Reporter,
    ) -> RoundOutcome {
        let writes = stream::iter(due(groups.values().copied(), &objects.pod_groups));
        let written: Vec<_> = writes
            .map(async |(key, write)| {
                let written = self.write_pod_group(&key, &write).await;
                (key, written)
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        let mut is_done = true;
        let placed =
            groups.iter().filter_map(|(key, group)| Some(((*key).clone(), waiting(group)?)));
        let mut why: BTreeMap<GroupKey, WaitingReason> = placed.collect();
        for (key, written) in written {
            match (written, groups.get(&key)) {
                (Ok(WriteOutcome::Created), Some(group)) => {
                    self.metrics.count(Outcome::PodGroup);
                    reporter.made_pod_group(group).await;
                }
                (Ok(WriteOutcome::ConstraintDropped), Some(_)) => {
                    why.insert(key, WaitingReason::ConstraintDropped);
                }
                (Ok(_), _) => {}
                (Err(error), _) => {
                    is_done = false;
                    tracing::warn!(group = %key, error = %Chain(&error), "Trying again");
                }
            }
        }
        RoundOutcome { is_done, waiting: why.into_iter().collect() }
    }

    async fn write_pod_group(
        &self,
        key: &GroupKey,
        write: &PodGroupWrite,
    ) -> Result<WriteOutcome, ApiError> {
        let api: Api<PodGroup> = Api::namespaced(self.client.clone(), &key.namespace);
        let name = pod_group(&key.label);
        let outcome = match write {
            PodGroupWrite::Create(object) => create(&api, object).await,
            PodGroupWrite::SetMinCount { version, min_count } => {
                let patch = Patch::Merge(json!({
                    "metadata": {"resourceVersion": version},
                    "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
                }));
                let written = api.patch_metadata(&name, &PatchParams::default(), &patch).await;
                written.map(|_| WriteOutcome::Done)
            }
            PodGroupWrite::Delete { uid, version } => {
                let seen = Preconditions {
                    uid: Some(uid.clone()),
                    resource_version: Some(version.clone()),
                };
                let deleted = api.delete(&name, &DeleteParams::default().preconditions(seen)).await;
                deleted.map(|_| WriteOutcome::Done)
            }
        };
        match outcome {
            // The next round reads what exists by then.
            Err(error) if is_outdated(&error) => Ok(WriteOutcome::Done),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(WriteOutcome::Done),
            other => other.map_err(writing("PodGroup", &name)),
        }
    }
}

/// Creates a `PodGroup`, if a dry run shows that the API server keeps its constraint.
/// Without the constraint the scheduler would place the pods anywhere.
async fn create(api: &Api<PodGroup>, object: &PodGroup) -> kube::Result<WriteOutcome> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    if !has_constraint(&api.create(&dry_run, object).await?) {
        return Ok(WriteOutcome::ConstraintDropped);
    }
    api.create(&PostParams::default(), object).await?;
    Ok(WriteOutcome::Created)
}
