//! The certificate of the webhook's own: kept in a Secret, and its authority
//! written into the webhook configurations. The namespace owns these, so that who
//! deletes it leaves no webhook behind that nobody answers.

use super::{Leader, LeaderError, reading, writing};
use crate::server::certificate::{bundle, data};
use cluster_model::names::object;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
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

/// For how long changes are gathered before a look: a chart is applied object by object.
const GATHER: Duration = Duration::from_millis(500);
/// How soon what failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// The longest time between two looks: clocks are set.
const LOOK_MAX: Duration = Duration::from_hours(1);

impl Leader {
    /// Looks at the Secret and the configurations when any of them changes, as somebody may have
    /// applied them again, empty; and when a certificate is due.
    pub(super) async fn keep_certificates(&self) {
        let Some(names) = &self.names else { return };
        let mut changes = self.certificate_changes();
        loop {
            let next = match self.keep_certificates_once(names).await {
                Ok(due) => {
                    let left = due.map(|due| due.duration_since(Timestamp::now()));
                    let left = left.and_then(|left| Duration::try_from(left).ok());
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
            // All that came meanwhile is one change.
            while changes.next().now_or_never().flatten().is_some() {}
        }
    }

    /// Tells, for ever, when the Secret or a configuration is there, has changed or is gone.
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

    /// Returns when a certificate is due.
    async fn keep_certificates_once(
        &self,
        names: &[String],
    ) -> Result<Option<Timestamp>, LeaderError> {
        let client = &self.templates.client;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let name = object::CERTIFICATES;
        let mut secret = secrets.get(name).await.map_err(reading("Secret", name))?;
        if let Some(renewed) = bundle(&secret).renewed(names, Timestamp::now())? {
            secret.data = Some(data(&renewed));
            // Refused where another has written it since: looked at again next time.
            let written = secrets.replace(name, &PostParams::default(), &secret).await;
            secret = written.map_err(writing("Secret", name))?;
            tracing::info!(?names, "Certificate renewed");
        }
        let bundle = bundle(&secret);
        let owner = self.owner().await?;
        let mutating = ApiResource::erase::<MutatingWebhookConfiguration>(&());
        let validating = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
        for (kind, name) in [(mutating, object::WEBHOOK), (validating, object::LINT_WEBHOOK)] {
            keep(&Api::all_with(client.clone(), &kind), name, &bundle.authorities, &owner).await?;
        }
        Ok(bundle.next_due())
    }

    /// The namespace, as the owner of what lies in none.
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

/// Tells when the object of this name is there, has changed or is gone.
fn changes<K>(api: Api<K>, name: &'static str) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher(api, config).default_backoff().touched_objects();
    let told = move |event: watcher::Result<K>| {
        event.inspect_err(|error| tracing::warn!(%error, name, "Watch failed; trying again")).ok()
    };
    events.filter_map(move |event| ready(told(event).map(drop))).boxed()
}

/// Makes a configuration trust the authorities and go with its owner, if it is there and
/// does not.
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
    tracing::info!(configuration = name, "Authority and owner written");
    Ok(())
}

/// What makes each webhook of a configuration trust the authorities that does not.
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
