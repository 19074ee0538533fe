//! The only write in the request path: creates a missing template, or removes the
//! collection mark of an existing one.

use crate::template::MANAGED_BY;
use cluster_model::names::annotation;
use cluster_model::view::ObjectKey;
use cluster_model::watch::SharedView;
use k8s_openapi::api::resource::v1::{
    ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use moka::future::Cache;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long a pod waits for its template. The webhook has five seconds in all.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a write may take in all. It continues after the pods that waited for it have
/// been refused, so that their next attempt finds the template.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// How long a write is remembered that the watch has not reported yet.
const UNREPORTED: Duration = Duration::from_secs(10);
/// A template is never collected this soon after a request has relied on it. The leader
/// sees the pod within seconds and removes the mark.
const SAFE: SignedDuration = SignedDuration::from_mins(10);
/// The most writes that are remembered.
const WRITES_MAX: u64 = 1_000;

/// A template that a pod needs could not be provided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    /// The API server refused it or did not answer.
    #[error("failed to create ResourceClaimTemplate `{key}` that the pod needs")]
    Create { key: ObjectKey, source: Box<kube::Error> },
    /// The existing template could not be read.
    #[error("failed to compare ResourceClaimTemplate `{key}` with what the pod needs")]
    Compare { key: ObjectKey, source: Box<kube::Error> },
    /// It is marked for collection, and the mark could not be removed.
    #[error("failed to keep ResourceClaimTemplate `{key}` that the pod needs from being collected")]
    Keep { key: ObjectKey, source: Box<kube::Error> },
    /// Another object has its name.
    #[error("ResourceClaimTemplate `{key}` exists with different content; delete it")]
    Differs { key: ObjectKey },
    /// The write panicked, which is a bug.
    #[error("internal error in admission; its log has the details")]
    Failed,
    /// The write takes too long.
    #[error(
        "ResourceClaimTemplate `{key}` that the pod needs was not written within {PATIENCE:?}; \
         try again"
    )]
    Slow { key: ObjectKey },
}

impl TemplateError {
    /// Whether the same request may succeed a second later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Slow { .. } => true,
            Self::Differs { .. } | Self::Failed => false,
            Self::Create { source, .. }
            | Self::Compare { source, .. }
            | Self::Keep { source, .. } => match &**source {
                kube::Error::Api(status) => status.code >= 429,
                _ => true,
            },
        }
    }
}

/// The write that was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateWrite {
    Nothing,
    Created,
    Kept,
}

/// Provides templates, for handlers and for the leader that recreates them.
#[derive(Clone)]
pub(crate) struct Templates {
    pub(crate) client: Client,
    pub(crate) view: SharedView,
    /// How long a template without references is kept.
    keep_unused: SignedDuration,
    /// Writes of this replica that its watch may not have reported yet.
    writes: Cache<ObjectKey, TemplateWrite>,
}

impl Templates {
    pub(crate) fn new(client: Client, view: SharedView, keep_unused: Duration) -> Self {
        let keep_unused = SignedDuration::try_from(keep_unused).unwrap_or(SignedDuration::MAX);
        // If templates are collected sooner than that, each request checks them itself.
        let remembered = if keep_unused > SAFE { UNREPORTED } else { Duration::ZERO };
        let writes = Cache::builder().max_capacity(WRITES_MAX).time_to_live(remembered).build();
        Self { client, view, keep_unused, writes }
    }

    /// Makes sure that the template exists with this content and is not collected.
    /// `template` is `None` if the view has it. If several pods need one template at the
    /// same time, it is written once, and all get the result.
    pub(crate) async fn ensure(
        &self,
        key: &ObjectKey,
        template: Option<&ResourceClaimTemplate>,
    ) -> Result<TemplateWrite, Arc<TemplateError>> {
        match self.stored(key, template) {
            Some(StoredTemplate::Good) => return Ok(TemplateWrite::Nothing),
            Some(StoredTemplate::Other) => {
                return Err(Arc::new(TemplateError::Differs { key: key.clone() }));
            }
            Some(StoredTemplate::Marked) | None => {}
        }
        // A separate task, which continues when this request stops waiting.
        let written = tokio::spawn(self.clone().write_once(key.clone(), template.cloned()));
        match tokio::time::timeout(PATIENCE, written).await {
            Ok(Ok(written)) => written,
            Ok(Err(_panic)) => Err(Arc::new(TemplateError::Failed)),
            Err(_) => Err(Arc::new(TemplateError::Slow { key: key.clone() })),
        }
    }

    async fn write_once(
        self,
        key: ObjectKey,
        template: Option<ResourceClaimTemplate>,
    ) -> Result<TemplateWrite, Arc<TemplateError>> {
        let write = async {
            let written = tokio::time::timeout(WRITE_MAX, self.write(&key, template.as_ref()));
            written.await.unwrap_or_else(|_| Err(TemplateError::Slow { key: key.clone() }))
        };
        let entry = self.writes.entry_by_ref(&key).or_try_insert_with(write).await?;
        // Only the caller that wrote reports the write.
        Ok(if entry.is_fresh() { entry.into_value() } else { TemplateWrite::Nothing })
    }

    /// Makes sure that the template exists and is not collected, ignoring remembered
    /// writes.
    pub(crate) async fn write(
        &self,
        key: &ObjectKey,
        template: Option<&ResourceClaimTemplate>,
    ) -> Result<TemplateWrite, TemplateError> {
        match (self.stored(key, template), template) {
            (Some(found), _) => self.settle(key, found, template).await,
            (None, Some(template)) => self.create(key, template).await,
            // It was deleted since the answer was made.
            (None, None) => Err(TemplateError::Slow { key: key.clone() }),
        }
    }

    /// The object of this name in the view.
    fn stored(
        &self,
        key: &ObjectKey,
        template: Option<&ResourceClaimTemplate>,
    ) -> Option<StoredTemplate> {
        let view = self.view.read();
        Some(self.compared(view.template_object(key)?, template))
    }

    fn compared(
        &self,
        there: &ResourceClaimTemplate,
        wanted: Option<&ResourceClaimTemplate>,
    ) -> StoredTemplate {
        StoredTemplate::of(there, wanted, self.keep_unused, Timestamp::now())
    }

    async fn settle(
        &self,
        key: &ObjectKey,
        found: StoredTemplate,
        template: Option<&ResourceClaimTemplate>,
    ) -> Result<TemplateWrite, TemplateError> {
        match (found, template) {
            (StoredTemplate::Good, _) => Ok(TemplateWrite::Nothing),
            (StoredTemplate::Other, _) => Err(TemplateError::Differs { key: key.clone() }),
            (StoredTemplate::Marked, template) => {
                if self.keep_or_miss(key).await? {
                    return Ok(TemplateWrite::Kept);
                }
                let gone = || TemplateError::Slow { key: key.clone() };
                self.create(key, template.ok_or_else(gone)?).await
            }
        }
    }

    async fn create(
        &self,
        key: &ObjectKey,
        template: &ResourceClaimTemplate,
    ) -> Result<TemplateWrite, TemplateError> {
        let api = self.api(key);
        match api.create(&params(), template).await {
            Ok(_) => Ok(TemplateWrite::Created),
            // Created by another replica, or by this one before its watch reported it.
            Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {
                let compare = |source| TemplateError::Compare { key: key.clone(), source };
                let there = api.get(&key.name).await.map_err(Box::new).map_err(compare)?;
                match self.compared(&there, Some(template)) {
                    StoredTemplate::Good => Ok(TemplateWrite::Nothing),
                    StoredTemplate::Other => Err(TemplateError::Differs { key: key.clone() }),
                    StoredTemplate::Marked if self.keep_or_miss(key).await? => {
                        Ok(TemplateWrite::Kept)
                    }
                    StoredTemplate::Marked => Err(TemplateError::Slow { key: key.clone() }),
                }
            }
            Err(source) => {
                Err(TemplateError::Create { key: key.clone(), source: Box::new(source) })
            }
        }
    }

    /// Removes the mark of an unused template. A collector that has read the mark cannot
    /// delete it afterwards, because the resource version has changed.
    pub(crate) async fn keep(&self, key: &ObjectKey) -> kube::Result<()> {
        let no_mark = json!({"metadata": {"annotations": {annotation::UNUSED_SINCE: null}}});
        let patch = Patch::Merge(no_mark);
        self.api(key).patch(&key.name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// The same; returns false if the template is gone.
    async fn keep_or_miss(&self, key: &ObjectKey) -> Result<bool, TemplateError> {
        match self.keep(key).await {
            Ok(()) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
            Err(source) => Err(TemplateError::Keep { key: key.clone(), source: Box::new(source) }),
        }
    }

    pub(crate) fn api(&self, key: &ObjectKey) -> Api<ResourceClaimTemplate> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

/// State of the object with the template's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredTemplate {
    Good,
    /// It may be collected before the leader sees the pod.
    Marked,
    Other,
}

impl StoredTemplate {
    fn of(
        there: &ResourceClaimTemplate,
        wanted: Option<&ResourceClaimTemplate>,
        keep_unused: SignedDuration,
        now: Timestamp,
    ) -> Self {
        // Only the claim matters; labels may differ between versions of admission.
        let same = |wanted| claim_of(wanted) == claim_of(there);
        let annotations = there.metadata.annotations.as_ref();
        let unused_since = annotations.and_then(|all| all.get(annotation::UNUSED_SINCE));
        // An unreadable mark may be old.
        let is_young = |since: &String| {
            let since = since.parse::<Timestamp>().ok();
            since.is_some_and(|since| now.duration_since(since) < keep_unused - SAFE)
        };
        if !wanted.is_none_or(same) {
            Self::Other
        } else if unused_since.is_none_or(is_young) {
            Self::Good
        } else {
            Self::Marked
        }
    }
}

fn claim_of(template: &ResourceClaimTemplate) -> Option<&ResourceClaimSpec> {
    let ResourceClaimTemplateSpec { spec, .. } = template.spec.as_ref()?;
    spec.as_ref()
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGED_BY.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, Response};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::client::Body;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::service_fn;

    const HOUR: Duration = Duration::from_hours(1);

    fn key() -> ObjectKey {
        ObjectKey { namespace: "team".to_owned(), name: "dranet-0".to_owned() }
    }

    fn template(unused_since: Option<&str>) -> ResourceClaimTemplate {
        let annotations = unused_since
            .map(|since| [(annotation::UNUSED_SINCE.to_owned(), since.to_owned())].into());
        let name = Some(key().name);
        ResourceClaimTemplate {
            metadata: ObjectMeta { name, annotations, ..ObjectMeta::default() },
            spec: Some(ResourceClaimTemplateSpec::default()),
        }
    }

    /// A server that gives every request the same answer, and the number of requests.
    fn answering(status: u16, body: serde_json::Value) -> (Templates, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let body = body.to_string();
            async move {
                // Let other callers find the write in progress.
                tokio::task::yield_now().await;
                Response::builder().status(status).body(Body::from(body.into_bytes()))
            }
        });
        let client = Client::new(service, "team");
        (Templates::new(client, SharedView::default(), HOUR), asked)
    }

    #[tokio::test]
    async fn the_template_of_a_burst_of_pods_is_written_once() {
        let (templates, asked) = answering(201, json!(template(None)));
        let (key, template) = (key(), template(None));
        let ensured = (0..50).map(|_| templates.ensure(&key, Some(&template)));
        let written = futures::future::join_all(ensured).await;
        let created = written.iter().filter(|it| matches!(it, Ok(TemplateWrite::Created))).count();
        let nothing = written.iter().filter(|it| matches!(it, Ok(TemplateWrite::Nothing))).count();
        assert_eq!((created, nothing), (1, 49));
        // The watch has not reported it yet.
        let again = templates.ensure(&key, Some(&template)).await;
        assert_eq!(again.unwrap(), TemplateWrite::Nothing);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn all_waiters_get_a_failure_and_the_next_request_retries() {
        let (templates, asked) = answering(
            403,
            json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                   "message": "exceeded quota"}),
        );
        let (key, template) = (key(), template(None));
        let ask = || templates.ensure(&key, Some(&template));
        let (one, other) = tokio::join!(ask(), ask());
        for refused in [one, other] {
            let error = refused.unwrap_err();
            assert!(matches!(&*error, TemplateError::Create { .. }), "{error:?}");
            assert!(!error.is_passing());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        ask().await.unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_mark_is_removed_if_collection_may_be_near() {
        let now: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
        let hour = SignedDuration::from_hours(1);
        let short = SignedDuration::from_mins(5);
        for (since, keep_unused, expected) in [
            (None, hour, StoredTemplate::Good),
            (Some("2026-01-01T01:59:00Z"), hour, StoredTemplate::Good),
            (Some("2026-01-01T01:10:01Z"), hour, StoredTemplate::Good),
            (Some("2026-01-01T01:10:00Z"), hour, StoredTemplate::Marked),
            (Some("yesterday"), hour, StoredTemplate::Marked),
            (Some("2026-01-01T02:00:00Z"), short, StoredTemplate::Marked),
        ] {
            let found = StoredTemplate::of(&template(since), None, keep_unused, now);
            assert_eq!(found, expected, "{since:?} {keep_unused}");
        }
    }
}
