//! The templates that requests have decided on, and their creation once the pod exists.
//!
//! A request writes nothing: whoever reaches the webhook could otherwise create objects in any
//! namespace. It remembers the template, and [`super::writer`] creates it when the watch of pods
//! shows one that refers to it.

use crate::template::{self, MANAGED_BY};
use cluster_model::names::annotation;
use cluster_model::view::ObjectKey;
use cluster_model::watch::SharedView;
use k8s_openapi::api::resource::v1::{
    ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use moka::future::Cache;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long a write may take in all.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// How long a write is remembered that the watch has not reported yet.
const UNREPORTED: Duration = Duration::from_secs(10);
/// How long a template is remembered for its pod. kube-apiserver stores the pod within 30 s.
const EXPECTED: Duration = Duration::from_mins(2);
/// The most bytes of remembered templates, as JSON. Requests of strangers push older ones out; the
/// leader then decides on the pod again.
const EXPECTED_MAX: u64 = 16 << 20;
/// A template is never collected this soon after a request has relied on it. The leader
/// sees the pod within seconds and removes the mark.
const SAFE: SignedDuration = SignedDuration::from_mins(10);
/// The most writes that are remembered.
const WRITES_MAX: u64 = 1_000;

/// A template that a pod needs could not be provided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    /// The API server did not create it.
    #[error("failed to create ResourceClaimTemplate `{key}` that the pod needs")]
    Create { key: ObjectKey, source: Box<kube::Error> },
    /// The API server refused it: by a quota, a policy or for its rights.
    #[error("ResourceClaimTemplate `{key}` that the pod needs is refused: {why}")]
    Refused { key: ObjectKey, why: String },
    /// The existing template could not be read.
    #[error("failed to compare ResourceClaimTemplate `{key}` with what the pod needs")]
    Compare { key: ObjectKey, source: Box<kube::Error> },
    /// It is marked for collection, and the mark could not be removed.
    #[error("failed to keep ResourceClaimTemplate `{key}` that the pod needs from being collected")]
    Keep { key: ObjectKey, source: Box<kube::Error> },
    /// Another object has its name.
    #[error("ResourceClaimTemplate `{key}` exists with different content; delete it")]
    Differs { key: ObjectKey },
    /// The write takes too long.
    #[error(
        "ResourceClaimTemplate `{key}` that the pod needs was not written within {WRITE_MAX:?}"
    )]
    Slow { key: ObjectKey },
}

/// The write that was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateWrite {
    Nothing,
    Created,
    Kept,
}

/// Remembers and writes templates, for handlers, the writer and the leader that recreates them.
#[derive(Clone)]
pub(crate) struct Templates {
    pub(crate) client: Client,
    pub(crate) view: SharedView,
    /// How long a template without references is kept.
    keep_unused: SignedDuration,
    /// Writes of this replica that its watch may not have reported yet.
    writes: Cache<ObjectKey, TemplateWrite>,
    /// Templates of pods that this replica has patched and that may not be stored yet.
    expected: moka::sync::Cache<ObjectKey, Arc<ResourceClaimTemplate>>,
}

impl Templates {
    pub(crate) fn new(client: Client, view: SharedView, keep_unused: Duration) -> Self {
        let keep_unused = SignedDuration::try_from(keep_unused).unwrap_or(SignedDuration::MAX);
        // If templates are collected sooner than that, each request checks them itself.
        let remembered = if keep_unused > SAFE { UNREPORTED } else { Duration::ZERO };
        let writes = Cache::builder().max_capacity(WRITES_MAX).time_to_live(remembered).build();
        let expected = moka::sync::Cache::builder()
            .weigher(|_: &ObjectKey, template: &Arc<ResourceClaimTemplate>| weight(template))
            .max_capacity(EXPECTED_MAX)
            .time_to_live(EXPECTED)
            .build();
        Self { client, view, keep_unused, writes, expected }
    }

    /// The same templates, written through another client.
    pub(crate) fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// Whether a pod can use the template. `template` is `None` if the view has it.
    ///
    /// # Errors
    /// Another object has its name.
    pub(crate) fn check(
        &self,
        key: &ObjectKey,
        template: Option<&ResourceClaimTemplate>,
    ) -> Result<(), TemplateError> {
        if self.stored(key, template) == Some(StoredTemplate::Other) {
            return Err(TemplateError::Differs { key: key.clone() });
        }
        Ok(())
    }

    /// Remembers the template that a pod needs until the pod exists. `template` is `None` if the
    /// view has it.
    pub(crate) fn expect(&self, key: &ObjectKey, template: Option<&ResourceClaimTemplate>) {
        // One that exists may be collected before the pod is stored.
        let template = template.cloned().or_else(|| self.without_mark(key));
        if let Some(template) = template.filter(|_| !self.expected.contains_key(key)) {
            self.expected.insert(key.clone(), Arc::new(template));
        }
    }

    /// A copy of the template that the view has, without its mark. One that somebody else has written
    /// under such a name is not copied.
    fn without_mark(&self, key: &ObjectKey) -> Option<ResourceClaimTemplate> {
        let view = self.view.read();
        let there = view.template_object(key).filter(|it| template::is_named_by_content(it))?;
        let mut annotations = there.metadata.annotations.clone();
        if let Some(annotations) = &mut annotations {
            annotations.remove(annotation::UNUSED_SINCE);
        }
        let metadata = ObjectMeta {
            name: there.metadata.name.clone(),
            labels: there.metadata.labels.clone(),
            annotations,
            ..ObjectMeta::default()
        };
        Some(ResourceClaimTemplate { metadata, spec: there.spec.clone() })
    }

    /// Creates a remembered template, unless it exists. Does nothing if it is not remembered.
    pub(crate) async fn provide(
        &self,
        key: &ObjectKey,
    ) -> Result<TemplateWrite, Arc<TemplateError>> {
        if self.stored(key, None) == Some(StoredTemplate::Good) {
            return Ok(TemplateWrite::Nothing);
        }
        let Some(template) = self.expected.get(key) else { return Ok(TemplateWrite::Nothing) };
        self.write_once(key.clone(), template).await
    }

    /// If several pods need one template at the same time, it is written once.
    async fn write_once(
        &self,
        key: ObjectKey,
        template: Arc<ResourceClaimTemplate>,
    ) -> Result<TemplateWrite, Arc<TemplateError>> {
        let write = async {
            let written = tokio::time::timeout(WRITE_MAX, self.write(&key, Some(&template)));
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
        StoredTemplate::new(there, wanted, self.keep_unused, self.view.now())
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
                self.create(key, template.ok_or_else(|| TemplateError::Slow { key: key.clone() })?)
                    .await
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
                let there = api
                    .get(&key.name)
                    .await
                    .map_err(Box::new)
                    .map_err(|source| TemplateError::Compare { key: key.clone(), source })?;
                match self.compared(&there, Some(template)) {
                    StoredTemplate::Good => Ok(TemplateWrite::Nothing),
                    StoredTemplate::Other => Err(TemplateError::Differs { key: key.clone() }),
                    StoredTemplate::Marked if self.keep_or_miss(key).await? => {
                        Ok(TemplateWrite::Kept)
                    }
                    StoredTemplate::Marked => Err(TemplateError::Slow { key: key.clone() }),
                }
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                // The text begins with the object's name.
                let (_, why) = status.message.split_once("is forbidden: ").unwrap_or_default();
                let why = if why.is_empty() { &status.message } else { why };
                Err(TemplateError::Refused { key: key.clone(), why: why.to_owned() })
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

#[cfg(test)]
impl Templates {
    /// Forgets what is remembered for some seconds or minutes.
    pub(crate) fn minutes_pass(&self) {
        self.writes.invalidate_all();
        self.expected.invalidate_all();
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
    fn new(
        there: &ResourceClaimTemplate,
        wanted: Option<&ResourceClaimTemplate>,
        keep_unused: SignedDuration,
        now: Timestamp,
    ) -> Self {
        // Only the claim matters; labels may differ between versions of admission.
        if wanted.is_some_and(|wanted| claim_of(wanted) != claim_of(there)) {
            return Self::Other;
        }
        let annotations = there.metadata.annotations.as_ref();
        let unused_since = annotations.and_then(|all| all.get(annotation::UNUSED_SINCE));
        let is_young = unused_since.is_none_or(|since| {
            // An unreadable mark may be old.
            let since = since.parse::<Timestamp>().ok();
            since.is_some_and(|since| now.duration_since(since) < keep_unused - SAFE)
        });
        if is_young { Self::Good } else { Self::Marked }
    }
}

fn claim_of(template: &ResourceClaimTemplate) -> Option<&ResourceClaimSpec> {
    let ResourceClaimTemplateSpec { spec, .. } = template.spec.as_ref()?;
    spec.as_ref()
}

/// The bytes of a template as JSON.
fn weight(template: &ResourceClaimTemplate) -> u32 {
    let bytes = serde_json::to_vec(template).map_or(usize::MAX, |text| text.len());
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGED_BY.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, Response};
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
        assert_eq!(templates.provide(&key).await.unwrap(), TemplateWrite::Nothing, "unknown");
        templates.expect(&key, Some(&template));
        assert_eq!(asked.load(Ordering::Relaxed), 0, "requests write nothing");
        let provided = (0..50).map(|_| templates.provide(&key));
        let written = futures::future::join_all(provided).await;
        let created = written.iter().filter(|it| matches!(it, Ok(TemplateWrite::Created))).count();
        let nothing = written.iter().filter(|it| matches!(it, Ok(TemplateWrite::Nothing))).count();
        assert_eq!((created, nothing), (1, 49));
        // The watch has not reported it yet.
        let again = templates.provide(&key).await;
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
        templates.expect(&key, Some(&template));
        let ask = || templates.provide(&key);
        let (one, other) = tokio::join!(ask(), ask());
        for refused in [one, other] {
            let error = refused.unwrap_err();
            let why = "ResourceClaimTemplate `team/dranet-0` that the pod needs is refused: \
                       exceeded quota";
            assert_eq!(error.to_string(), why);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        ask().await.unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    /// A server on which another replica has just created `there`.
    fn taken_by(there: &ResourceClaimTemplate) -> Templates {
        let there = json!(there);
        let service = service_fn(move |request: Request<Body>| {
            let (status, body) = match request.method().as_str() {
                "POST" => (
                    409,
                    json!({"kind": "Status", "status": "Failure", "code": 409,
                                       "reason": "AlreadyExists", "message": "it exists"}),
                ),
                _ => (200, there.clone()),
            };
            let body = Body::from(body.to_string().into_bytes());
            async move { Response::builder().status(status).body(body) }
        });
        Templates::new(Client::new(service, "team"), SharedView::default(), HOUR)
    }

    #[tokio::test]
    async fn a_template_that_another_replica_has_just_created_is_compared() {
        let wanted = template(None);
        let write = async |there: &ResourceClaimTemplate| {
            taken_by(there).write(&key(), Some(&wanted)).await
        };
        assert_eq!(write(&wanted).await.unwrap(), TemplateWrite::Nothing);
        // Its mark is removed.
        let marked = template(Some("2026-01-01T00:00:00Z"));
        assert_eq!(write(&marked).await.unwrap(), TemplateWrite::Kept);
        let spec = ResourceClaimTemplateSpec {
            spec: Some(ResourceClaimSpec::default()),
            ..ResourceClaimTemplateSpec::default()
        };
        let other = ResourceClaimTemplate { spec: Some(spec), ..wanted.clone() };
        assert!(matches!(write(&other).await, Err(TemplateError::Differs { .. })));
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
            let found = StoredTemplate::new(&template(since), None, keep_unused, now);
            assert_eq!(found, expected, "{since:?} {keep_unused}");
        }
    }
}
