//! The care of templates: those that nobody refers to are marked, and collected
//! an hour later; one that a waiting pod refers to and that is gone is made again.

use super::care::{State, Step, step};
use super::remake::remake;
use super::{Leader, LeaderError, reading, writing};
use crate::rewrite;
use crate::server::metrics::Care;
use crate::server::templates::Written;
use crate::template::{self, MANAGED_BY, MANAGED_BY_LABEL, TEMPLATE_LABEL};
use cluster_model::names::annotation;
use cluster_model::view::{ClusterView, ObjectKey};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use process::chain::Chain;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// How often templates and waiting pods are looked over, in memory.
const PERIOD: Duration = Duration::from_secs(2);

impl Leader {
    /// Follows the pods that no node has yet: a pod that runs has its claim.
    pub(super) async fn care_for_templates(&self) {
        let (waiting, writer) = reflector::store::<Pod>();
        let pods: Api<Pod> = Api::all(self.templates.client.clone());
        let config = watcher::Config::default().fields("spec.nodeName=");
        let slim = |pod: &mut Pod| pod.metadata.managed_fields = None;
        let events = watcher(pods, config).default_backoff().modify(slim);
        let events = reflector::reflector(writer, events).for_each(async |event| {
            if let Err(error) = event {
                tracing::warn!(%error, "Watch of waiting pods failed; trying again");
            }
        });
        let care = async {
            // Fails only where the watch above is dropped.
            if waiting.wait_until_ready().await.is_ok() {
                self.care_from(&waiting).await;
            }
        };
        tokio::join!(events, care);
    }

    async fn care_from(&self, waiting: &Store<Pod>) {
        let mut lost = BTreeSet::new();
        loop {
            let pods = waiting.state();
            self.heal(&pods, &mut lost).await;
            for due in self.due(&pods, Timestamp::now()) {
                if let Err(error) = self.take(&due).await {
                    tracing::warn!(template = %due.key, error = %Chain(&error), "Not cared for");
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// What is to be done about templates, from memory.
    fn due(&self, waiting: &[Arc<Pod>], now: Timestamp) -> Vec<Due> {
        let view = self.templates.view.read();
        let used = used(&view, waiting);
        let keep = SignedDuration::try_from(self.keep_unused).unwrap_or(SignedDuration::MAX);
        let ours = view.templates().filter(|(_, template)| is_ours(template));
        let due = ours.filter_map(|(key, template)| {
            let step = step(state(template, used.contains(key))?, keep, now)?;
            let version = template.metadata.resource_version.clone()?;
            Some(Due { key: key.clone(), version, step })
        });
        due.collect()
    }

    async fn take(&self, due: &Due) -> Result<(), LeaderError> {
        let Due { key, step, .. } = due;
        let (done, action) = match step {
            Step::Mark => (self.mark(due).await?, Care::Marked),
            Step::Keep => (self.keep(key).await?, Care::Kept),
            Step::Collect if self.is_used_now(key).await? => (self.keep(key).await?, Care::Kept),
            Step::Collect => (self.collect(due).await?, Care::Collected),
        };
        if done {
            tracing::info!(template = %key, ?action, "Template cared for");
            self.metrics.count_care(action);
        }
        Ok(())
    }

    async fn mark(&self, due: &Due) -> Result<bool, LeaderError> {
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": due.version,
            "annotations": {annotation::UNUSED_SINCE: Timestamp::now().to_string()},
        }}));
        let key = &due.key;
        let params = PatchParams::default();
        written(self.templates.api(key).patch(&key.name, &params, &patch).await.map(drop), key)
    }

    async fn keep(&self, key: &ObjectKey) -> Result<bool, LeaderError> {
        written(self.templates.keep(key).await.map(drop), key)
    }

    /// Looks at the cluster itself, not at memory: the view may be behind.
    async fn is_used_now(&self, key: &ObjectKey) -> Result<bool, LeaderError> {
        let client = &self.templates.client;
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &key.namespace);
        let labelled = format!("{TEMPLATE_LABEL}={}", key.name);
        let params = ListParams::default().labels(&labelled).limit(1);
        let claims = claims.list_metadata(&params).await;
        if !claims.map_err(reading("ResourceClaims of", &key.name))?.items.is_empty() {
            return Ok(true);
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
        let pods = pods.list(&ListParams::default()).await;
        let pods = pods.map_err(reading("Pods in", &key.namespace))?.items;
        Ok(pods.iter().any(|pod| rewrite::templates(pod).any(|name| name == key.name)))
    }

    /// Deletes what was decided about, and nothing newer: a handler that still
    /// answered with this template took its mark away, and with it the version.
    async fn collect(&self, due: &Due) -> Result<bool, LeaderError> {
        let resource_version = Some(due.version.clone());
        let preconditions = Preconditions { resource_version, uid: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let key = &due.key;
        written(self.templates.api(key).delete(&key.name, &params).await.map(drop), key)
    }

    /// Makes templates again that waiting pods refer to. `lost` are those of
    /// which it has been said that they cannot be.
    async fn heal(&self, waiting: &[Arc<Pod>], lost: &mut BTreeSet<ObjectKey>) {
        let missing = missing(&self.templates.view.read(), waiting);
        lost.retain(|key| missing.contains_key(key));
        for (key, pod) in missing {
            let remade = remake(&pod, &key.name, &self.templates.view.read(), &self.policy);
            match remade {
                Some(template) => match self.templates.ensure(&key, Some(&template)).await {
                    Ok(Written::Created) => {
                        tracing::info!(template = %key, pod = pod.name_any(), "Template made again");
                        self.metrics.count_care(Care::Healed);
                    }
                    Ok(Written::Nothing | Written::Kept) => {}
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "Template not made again");
                    }
                },
                None if lost.insert(key.clone()) => {
                    tracing::warn!(
                        template = %key, pod = pod.name_any(),
                        "Template is missing, and the pod's annotations lead to another now; \
                         create the pod again"
                    );
                    self.metrics.count_care(Care::Lost);
                }
                None => {}
            }
        }
    }
}

/// A step, and the version of the template that it was decided from.
struct Due {
    key: ObjectKey,
    version: String,
    step: Step,
}

/// Somebody else's change, or nothing there any more, is no error: it is looked
/// at again.
fn written(outcome: kube::Result<()>, key: &ObjectKey) -> Result<bool, LeaderError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, NOT_FOUND | CONFLICT) => Ok(false),
        Err(error) => Err(writing("ResourceClaimTemplate", &key.to_string())(error)),
    }
}

fn is_ours(template: &ResourceClaimTemplate) -> bool {
    let labels = template.metadata.labels.as_ref();
    let managed_by = labels.and_then(|labels| labels.get(MANAGED_BY_LABEL));
    managed_by.is_some_and(|name| name == MANAGED_BY) && template::is_ours(&template.name_any())
}

fn state(template: &ResourceClaimTemplate, used: bool) -> Option<State> {
    let created = template.metadata.creation_timestamp.as_ref()?.0;
    let unused_since = template.annotations().get(annotation::UNUSED_SINCE);
    // What cannot be read is a mark of this moment: it is kept once more.
    let unused_since = unused_since.map(|text| text.parse().unwrap_or(Timestamp::MAX));
    Some(State { created, unused_since, used })
}

/// The templates that claims were made from or that waiting pods refer to.
fn used(view: &ClusterView, waiting: &[Arc<Pod>]) -> BTreeSet<ObjectKey> {
    let of_claims = view.claims().filter_map(|(key, claim)| {
        let name = claim.labels.get(TEMPLATE_LABEL)?.clone();
        Some(ObjectKey { namespace: key.namespace.clone(), name })
    });
    let of_pods = waiting.iter().flat_map(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        let names = rewrite::templates(pod).map(str::to_owned);
        names.map(move |name| ObjectKey { namespace: namespace.clone(), name })
    });
    of_claims.chain(of_pods).collect()
}

/// Templates of ours that are not there, each with a pod that waits for it.
fn missing(view: &ClusterView, waiting: &[Arc<Pod>]) -> BTreeMap<ObjectKey, Arc<Pod>> {
    let alive = waiting.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let of_pod = |pod: &Arc<Pod>| {
        let namespace = pod.namespace().unwrap_or_default();
        let ours = rewrite::templates(pod).filter(|name| template::is_ours(name));
        let keys =
            ours.map(|name| ObjectKey { namespace: namespace.clone(), name: name.to_owned() });
        keys.map(|key| (key, Arc::clone(pod))).collect::<Vec<_>>()
    };
    alive.flat_map(of_pod).filter(|(key, _)| view.template(key).is_none()).collect()
}
