//! The one write in the request path: a template that is not there yet, or that
//! was about to be collected.

use crate::template::MANAGED_BY;
use cluster_model::names::annotation;
use cluster_model::view::ObjectKey;
use cluster_model::watch::SharedView;
use k8s_openapi::api::resource::v1::{
    ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;

/// How long a pod waits for its template; the webhook itself has five seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// A template that a pod needs could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    /// The API server refused it or did not answer.
    #[error("failed to create ResourceClaimTemplate `{key}` that the pod needs")]
    Create { key: ObjectKey, source: Box<kube::Error> },
    /// The one of its name could not be looked at.
    #[error("failed to compare ResourceClaimTemplate `{key}` with what the pod needs")]
    Compare { key: ObjectKey, source: Box<kube::Error> },
    /// It is marked for collection, and the mark could not be taken away.
    #[error("failed to keep ResourceClaimTemplate `{key}` that the pod needs from being collected")]
    Keep { key: ObjectKey, source: Box<kube::Error> },
    /// Somebody else's object has its name.
    #[error("ResourceClaimTemplate `{key}` exists with different content; delete it")]
    Differs { key: ObjectKey },
    /// It takes too long.
    #[error(
        "ResourceClaimTemplate `{key}` that the pod needs was not written within {PATIENCE:?}; \
         try again"
    )]
    Slow { key: ObjectKey },
}

impl TemplateError {
    /// Whether the same request may do better in a second.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Slow { .. } => true,
            Self::Differs { .. } => false,
            Self::Create { source, .. }
            | Self::Compare { source, .. }
            | Self::Keep { source, .. } => match &**source {
                kube::Error::Api(status) => status.code >= 429,
                _ => true,
            },
        }
    }
}

/// What had to be written so that the template is there to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateWrite {
    Nothing,
    Created,
    Kept,
}

/// Whoever makes templates: handlers, and the leader that heals.
#[derive(Clone)]
pub(crate) struct Templates {
    pub(crate) client: Client,
    pub(crate) view: SharedView,
}

impl Templates {
    /// Makes sure that the template is there with this content, and stays.
    /// `template` is `None` where the view has it.
    pub(crate) async fn ensure(
        &self,
        key: &ObjectKey,
        template: Option<&ResourceClaimTemplate>,
    ) -> Result<TemplateWrite, TemplateError> {
        let ensured = tokio::time::timeout(PATIENCE, self.ensure_slowly(key, template)).await;
        ensured.unwrap_or_else(|_| Err(TemplateError::Slow { key: key.clone() }))
    }

    async fn ensure_slowly(
        &self,
        key: &ObjectKey,
        template: Option<&ResourceClaimTemplate>,
    ) -> Result<TemplateWrite, TemplateError> {
        let known =
            self.view.read().template_object(key).map(|there| StoredTemplate::of(there, template));
        match (known, template) {
            (Some(found), _) => self.settle(key, found, template).await,
            (None, Some(template)) => self.create(key, template).await,
            // Gone since the answer was made.
            (None, None) => Err(TemplateError::Slow { key: key.clone() }),
        }
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
            // Another replica, or this one before its watch told it.
            Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {
                let compare = |source| TemplateError::Compare { key: key.clone(), source };
                let there = api.get(&key.name).await.map_err(Box::new).map_err(compare)?;
                match StoredTemplate::of(&there, Some(template)) {
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

    /// Takes the mark of an unused template away. A collector that has
    /// read the mark cannot delete after this: the resource version moved.
    pub(crate) async fn keep(&self, key: &ObjectKey) -> kube::Result<()> {
        let no_mark = json!({"metadata": {"annotations": {annotation::UNUSED_SINCE: null}}});
        let patch = Patch::Merge(no_mark);
        self.api(key).patch(&key.name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// The same; false where the template is gone.
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

/// What stands under the template's name.
enum StoredTemplate {
    Good,
    Marked,
    Other,
}

impl StoredTemplate {
    fn of(there: &ResourceClaimTemplate, wanted: Option<&ResourceClaimTemplate>) -> Self {
        // The claim decides; labels may differ between versions of ours.
        let same = |wanted| claim_of(wanted) == claim_of(there);
        let annotations = there.metadata.annotations.as_ref();
        if !wanted.is_none_or(same) {
            Self::Other
        } else if annotations.is_some_and(|all| all.contains_key(annotation::UNUSED_SINCE)) {
            Self::Marked
        } else {
            Self::Good
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
