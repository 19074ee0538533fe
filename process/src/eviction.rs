//! Evictions by the Eviction API, which respects PodDisruptionBudgets.

use crate::requests::{ApiError, is_outdated, writing};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::PostParams;
use kube::core::response::reason;
use serde_json::Value;

/// Whether an eviction is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The pod is evicted.
    No,
    /// The API server says what it would do.
    Yes,
}

/// The outcome of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The pod ends.
    Done,
    /// It was gone already.
    Gone,
    /// A PodDisruptionBudget refuses it for now, in the words of the API server.
    NotYet(String),
}

/// Evicts exactly the pod with this UID, with its own grace period. `Api::evict` of kube 5.0 sends the
/// UID in a field that the API server does not know (`delete_options`).
///
/// # Errors
/// The API server does not answer, or forbids it.
pub async fn evict(
    api: &Api<Pod>,
    name: &str,
    uid: &str,
    trial: Trial,
) -> Result<Evicted, ApiError> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let eviction = Eviction { metadata, delete_options: Some(options) };
    let params = PostParams { dry_run: trial == Trial::Yes, ..PostParams::default() };
    match api.create_subresource::<_, Value>("eviction", name, &params, &eviction).await {
        Ok(_) => Ok(Evicted::Done),
        Err(error) if is_outdated(&error) => Ok(Evicted::Gone),
        Err(kube::Error::Api(status)) if status.reason == reason::TOO_MANY_REQUESTS => {
            Ok(Evicted::NotYet(status.message.clone()))
        }
        Err(error) => Err(writing("Eviction of Pod", name)(error)),
    }
}
