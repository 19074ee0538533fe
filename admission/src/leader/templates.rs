//! Collects templates: those without references are marked, and deleted an hour later.

use super::attempts::Attempts;
use super::lifecycle::{TemplateAction, TemplateUse, due};
use super::outdated_pods::Looked;
use super::recreate::{GRACE, Lost, RETRY_MAX};
use super::{Leader, LeaderError, after, reading, writing};
use crate::pod_event;
use crate::rewrite;
use crate::server::metrics::TemplateOutcome;
use crate::template::{self, MANAGED_BY, MANAGED_BY_LABEL, TEMPLATE_LABEL};
use crate::waiting_pods::WaitingPods;
use cluster_model::names::annotation;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use process::chain::Chain;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The minimum time between checks of templates and waiting pods, which read only memory.
const PAUSE: Duration = Duration::from_secs(2);
/// The time until a failed or impossible action is retried, if nothing changes.
const RETRY: Duration = Duration::from_secs(10);
/// The number of pods to read at a time.
const PAGE: u32 = 100;

impl Leader {
    /// Keeps the templates of pods without a node.
    pub(super) async fn keep_templates(&self) {
        let mut lost = Lost::new();
        let mut attempts = Attempts::new(GRACE, RETRY_MAX);
        let mut looked = Looked::new();
        let view = &self.templates.view;
        loop {
            let seen = view.read().revision();
            let next = [
                self.recreate_missing(&mut lost, &mut attempts, Instant::now()).await,
                self.carry_out_due().await,
                self.report_outdated(&mut looked).await,
            ];
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                () = view.changed_since(seen, |now| (now.claims, now.templates)) => {}
                () = self.waiting.changed() => {}
                () = after(next.into_iter().flatten().min()) => {}
            }
        }
    }

    /// Carries out the due actions on templates. Returns the time until the next one.
    pub(super) async fn carry_out_due(&self) -> Option<Duration> {
        let now = self.templates.view.now();
        let (due, mut next) = self.due(now);
        for due in due {
            if let Err(error) = self.carry_out(&due, now).await {
                let error = Chain(&error);
                tracing::warn!(template = %due.key, %error, "Template collection failed");
                next = Some(next.map_or(RETRY, |next| next.min(RETRY)));
            }
        }
        next
    }

    /// The due actions on templates, decided from memory, and the time until the next one.
    fn due(&self, now: Timestamp) -> (Vec<Due>, Option<Duration>) {
        let view = self.templates.view.read();
        let used = used(&view, &self.waiting);
        let keep = SignedDuration::try_from(self.keep_unused).unwrap_or(SignedDuration::MAX);
        let ours = view.templates().filter(|(_, template)| is_ours(template));
        let all = ours.filter_map(|(key, template)| {
            let (at, action) = due(template_use(template, used.contains(key))?, keep)?;
            let version = template.metadata.resource_version.clone()?;
            Some((at, Due { key: key.clone(), version, action }))
        });
        let (due, later): (Vec<_>, Vec<_>) = all.partition(|(at, _)| *at <= now);
        let next = later.into_iter().map(|(at, _)| at).min();
        let next = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
        (due.into_iter().map(|(_, due)| due).collect(), next)
    }

    async fn carry_out(&self, due: &Due, now: Timestamp) -> Result<(), LeaderError> {
        let Due { key, action, .. } = due;
        let (done, outcome) = match action {
            TemplateAction::Mark => (self.mark(due, now).await?, TemplateOutcome::Marked),
            TemplateAction::Keep => (self.keep(key).await?, TemplateOutcome::Kept),
            TemplateAction::Collect if self.is_used_now(key).await? => {
                (self.keep(key).await?, TemplateOutcome::Kept)
            }
            TemplateAction::Collect => (self.collect(due).await?, TemplateOutcome::Collected),
        };
        if done {
            tracing::info!(template = %key, ?outcome, "Wrote a template");
            self.metrics.count_outcome(outcome);
        }
        Ok(())
    }

    async fn mark(&self, due: &Due, now: Timestamp) -> Result<bool, LeaderError> {
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": due.version,
            "annotations": {annotation::UNUSED_SINCE: now.to_string()},
        }}));
        let key = &due.key;
        let params = PatchParams::default();
        written(self.templates.api(key).patch(&key.name, &params, &patch).await.map(drop), key)
    }

    async fn keep(&self, key: &ObjectKey) -> Result<bool, LeaderError> {
        written(self.templates.keep(key).await.map(drop), key)
    }

    /// Whether the template is used, according to the API server. The view may be
    /// outdated.
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
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let pods = pods.list(&page).await.map_err(reading("Pods in", &key.namespace))?;
            if pods.iter().any(|pod| rewrite::templates(pod).any(|name| name == key.name)) {
                return Ok(true);
            }
            match pods.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(false),
            }
        }
    }

    /// Deletes exactly the version that was decided on. A handler that has meanwhile used
    /// the template has removed its mark, which changed the version.
    async fn collect(&self, due: &Due) -> Result<bool, LeaderError> {
        let resource_version = Some(due.version.clone());
        let preconditions = Preconditions { resource_version, uid: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let key = &due.key;
        written(self.templates.api(key).delete(&key.name, &params).await.map(drop), key)
    }

    pub(super) async fn pod(&self, key: &ObjectKey) -> Result<Option<Pod>, LeaderError> {
        let read = pod_event::read_pod(&self.templates.client, key).await;
        read.map_err(reading("Pod", &key.to_string()))
    }
}

/// The action for a template, and the template's version at the decision.
struct Due {
    key: ObjectKey,
    version: String,
    action: TemplateAction,
}

/// A conflict or an absent object is not an error: the template is checked again.
fn written(outcome: kube::Result<()>, key: &ObjectKey) -> Result<bool, LeaderError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(writing("ResourceClaimTemplate", &key.to_string())(error)),
    }
}

fn is_ours(template: &ResourceClaimTemplate) -> bool {
    let labels = template.metadata.labels.as_ref();
    let managed_by = labels.and_then(|labels| labels.get(MANAGED_BY_LABEL));
    managed_by.is_some_and(|name| name == MANAGED_BY) && template::is_ours(&template.name_any())
}

fn template_use(template: &ResourceClaimTemplate, used: bool) -> Option<TemplateUse> {
    let created = template.metadata.creation_timestamp.as_ref()?.0;
    let unused_since = template.annotations().get(annotation::UNUSED_SINCE);
    // An unreadable mark counts as new, so the template is kept for now.
    let unused_since = unused_since.map(|text| text.parse().unwrap_or(Timestamp::MAX));
    Some(TemplateUse { created, unused_since, used })
}

/// The templates that claims were created from or that waiting pods refer to.
fn used(view: &ClusterView, waiting: &WaitingPods) -> BTreeSet<ObjectKey> {
    let of_claims = view.claims().filter_map(|(key, claim)| {
        let name = claim.labels.get(TEMPLATE_LABEL)?.clone();
        Some(ObjectKey { namespace: key.namespace.clone(), name })
    });
    of_claims.chain(waiting.templates().into_keys()).collect()
}
