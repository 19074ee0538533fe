//! The one write in the request path: a template that is not there yet.

use crate::template::MANAGED_BY;
use cluster_model::view::ObjectKey;
use cluster_model::watch::SharedView;
use k8s_openapi::api::resource::v1::{
    ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

const CONFLICT: u16 = 409;

/// A template that a pod needs could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum TemplateError {
    /// The API server refused it or did not answer.
    #[error("failed to create ResourceClaimTemplate `{key}` that the pod needs")]
    Create { key: ObjectKey, source: Box<kube::Error> },
    /// The one of its name could not be looked at.
    #[error("failed to compare ResourceClaimTemplate `{key}` with what the pod needs")]
    Compare { key: ObjectKey, source: Box<kube::Error> },
    /// Somebody else's object has its name.
    #[error("ResourceClaimTemplate `{key}` is there and holds something else; delete it")]
    Differs { key: ObjectKey },
}

/// Makes sure that the template is there with this content; true if it was
/// made now.
pub(super) async fn ensure(
    client: &Client,
    view: &SharedView,
    namespace: &str,
    template: ResourceClaimTemplate,
) -> Result<bool, TemplateError> {
    let name = template.metadata.name.clone().unwrap_or_default();
    let key = ObjectKey { namespace: namespace.to_owned(), name };
    let claim = claim(template.spec.as_ref()).cloned();
    let known = view.read().template(&key).map(|there| there.spec == claim);
    match known {
        Some(true) => return Ok(false),
        Some(false) => return Err(TemplateError::Differs { key }),
        None => {}
    }
    let api: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { field_manager: Some(MANAGED_BY.to_owned()), ..Default::default() };
    match api.create(&params, &template).await {
        Ok(_) => Ok(true),
        // Another replica, or this one before its watch told it.
        Err(kube::Error::Api(status)) if status.code == CONFLICT => {
            let there = api.get(&key.name).await;
            let compare = |source| TemplateError::Compare { key: key.clone(), source };
            let there = there.map_err(|source| compare(Box::new(source)))?;
            // The claim decides; labels may differ between versions of ours.
            if self::claim(there.spec.as_ref()) == claim.as_ref() {
                return Ok(false);
            }
            Err(TemplateError::Differs { key })
        }
        Err(source) => Err(TemplateError::Create { key, source: Box::new(source) }),
    }
}

fn claim(template: Option<&ResourceClaimTemplateSpec>) -> Option<&ResourceClaimSpec> {
    template?.spec.as_ref()
}
