//! Maintains the webhook's own certificate in a Secret, and its authority in the webhook
//! configurations. The namespace owns the configurations, so that deleting the namespace
//! leaves no webhook behind that nobody serves.

use super::{Leader, LeaderError, clock, reading, writing};
use crate::server::certificate::{bundle, data};
use cluster_model::names::object;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use process::chain::Chain;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::future::ready;
use std::time::Duration;

/// How long to gather changes before a check, since a chart is applied object by object.
const GATHER: Duration = Duration::from_millis(500);
/// The pause before retrying after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// The longest time between two checks, since clocks may be adjusted.
const LOOK_MAX: Duration = Duration::from_hours(1);

impl Leader {
    /// Checks the Secret and the configurations when any of them changes, since they may have been
    /// applied again, empty; and when a certificate is due.
    pub(super) async fn keep_certificates(&self) {
        let Some(names) = &self.names else { return };
        let mut changes = self.certificate_changes();
        loop {
            let next = match self.keep_certificates_once(names).await {
                Ok(due) => {
                    let left = due.and_then(|left| Duration::try_from(left).ok());
                    left.unwrap_or_default().clamp(RETRY, LOOK_MAX)
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "Certificates not kept; trying again");
                    RETRY
                }
            };
            tokio::select! {
                _ = changes.next() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(next) => {}
            }
            // Everything that arrived meanwhile counts as one change.
            while changes.next().now_or_never().flatten().is_some() {}
        }
    }

    /// A stream with an item whenever the Secret or a configuration is created, changed or deleted.
    fn certificate_changes(&self) -> BoxStream<'static, ()> {
        let client = &self.templates.client;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        stream::select_all([
            changes(secrets, object::CERTIFICATES),
            changes(mutating, object::WEBHOOK),
            changes(validating, object::LINT_WEBHOOK),
        ])
        .boxed()
    }

    /// Updates the Secret and the configurations once. Returns the time until a certificate is due.
    async fn keep_certificates_once(
        &self,
        names: &[String],
    ) -> Result<Option<SignedDuration>, LeaderError> {
        let client = &self.templates.client;
        let now = clock::now_at_the_api_server(client).await?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let name = object::CERTIFICATES;
        let mut secret = secrets.get(name).await.map_err(reading("Secret", name))?;
        if let Some(renewed) = bundle(&secret).renewed(names, now)? {
            secret.data = Some(data(&renewed));
            // Refused if another replica has written it since; the next round reads it
            // again.
            let written = secrets.replace(name, &PostParams::default(), &secret).await;
            secret = written.map_err(writing("Secret", name))?;
            tracing::info!(?names, "Renewed the certificate");
        }
        let bundle = bundle(&secret);
        let owner = self.owner().await?;
        let mutating = ApiResource::erase::<MutatingWebhookConfiguration>(&());
        let validating = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
        for (kind, name) in [(mutating, object::WEBHOOK), (validating, object::LINT_WEBHOOK)] {
            keep(&Api::all_with(client.clone(), &kind), name, &bundle.authorities, &owner).await?;
        }
        Ok(bundle.next_due().map(|due| due.duration_since(now)))
    }

    /// The namespace, as the owner of cluster-scoped objects.
    async fn owner(&self) -> Result<OwnerReference, LeaderError> {
        let namespaces: Api<Namespace> = Api::all(self.templates.client.clone());
        let failed = reading("Namespace", &self.namespace);
        let namespace = namespaces.get_metadata(&self.namespace).await.map_err(failed)?;
        Ok(OwnerReference {
            api_version: Namespace::api_version(&()).into_owned(),
            kind: Namespace::kind(&()).into_owned(),
            name: self.namespace.clone(),
            uid: namespace.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        })
    }
}

/// A stream with an item whenever the named object is created, changed or deleted.
fn changes<K>(api: Api<K>, name: &'static str) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher(api, config).default_backoff().touched_objects();
    let events = events.inspect_err(move |error| {
        tracing::warn!(%error, name, "Watch failed; trying again");
    });
    events.filter_map(|event| ready(event.ok().map(drop))).boxed()
}

/// Adds the authorities and the owner to a configuration, if it exists and lacks them.
async fn keep(
    api: &Api<DynamicObject>,
    name: &str,
    authorities: &str,
    owner: &OwnerReference,
) -> Result<(), LeaderError> {
    let kind = "webhook configuration";
    let there = api.get_opt(name).await.map_err(reading(kind, name))?;
    let Some(there) = there else { return Ok(()) };
    let owners = there.metadata.owner_references.unwrap_or_default();
    let trusted = trusting(&there.data, authorities);
    let is_owned = owners.iter().any(|it| it.uid == owner.uid);
    if is_owned && trusted.is_empty() {
        return Ok(());
    }
    let version = there.metadata.resource_version.unwrap_or_default();
    let patch = json!({
        "metadata": {"resourceVersion": version, "ownerReferences": [owner]},
        "webhooks": trusted,
    });
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Strategic(patch)).await.map_err(writing(kind, name))?;
    tracing::info!(configuration = name, "Wrote authority and owner");
    Ok(())
}

/// The changes that make each webhook of a configuration trust the authorities.
fn trusting(configuration: &Value, authorities: &str) -> Vec<Value> {
    let bundle = json!(ByteString(authorities.as_bytes().to_vec()));
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks
        .filter(|hook| hook["clientConfig"]["caBundle"] != bundle)
        .map(|hook| json!({"name": hook["name"], "clientConfig": {"caBundle": bundle}}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_webhooks_that_trust_something_else_are_patched() {
        let hook =
            |name, bundle: Value| json!({"name": name, "clientConfig": {"caBundle": bundle}});
        let configuration = json!({
            "webhooks": [hook("a", "UEVN".into()), hook("b", Value::Null), hook("c", "T0xE".into())],
        });
        let expected = [hook("b", "UEVN".into()), hook("c", "UEVN".into())];
        assert_eq!(trusting(&configuration, "PEM"), expected);
        let content = json!({"webhooks": [hook("a", "UEVN".into())]});
        assert!(trusting(&content, "PEM").is_empty());
        assert!(trusting(&Value::Null, "PEM").is_empty());
    }
}
