//! Writes the authority of the webhook's certificate, and the namespace as owner, into the webhook
//! configurations, so that deleting the namespace leaves no webhook behind that nobody serves.
//!
//! Whoever may change these can make the API server send it every object and take its changes, and no
//! admission policy applies to them. So this is a program of its own, with a service account of its
//! own: it opens no port but that of health and metrics, and reads one Secret.

use super::certificate::bundle;
use crate::leader::certificates::{changes, next_change};
use crate::leader::{LeaderError, reading, writing};
use cluster_model::names::object;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource};
use process::chain::Chain;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use serve::http::Bound;
use serve::readiness::{Readiness, Wait};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The pause before retrying after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// The longest time between two checks.
const LOOK_MAX: Duration = Duration::from_hours(1);

/// Runs until `stop`. Ready as soon as both configurations have the authority.
pub(super) async fn run(
    client: Client,
    namespace: String,
    operations: Bound,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let readiness = Readiness::default();
    let router = serve::operations::router(readiness.clone(), Registry::default());
    let written = readiness.wait_for("webhook configurations");
    let writer = Writer { client, namespace };
    tokio::select! {
        served = operations.serve(router, stop) => Ok(served?),
        () = writer.work(written) => anyhow::bail!("the writer of the authority ended"),
    }
}

/// Writes the configurations of a namespace's webhook.
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Writer {
    /// Checks the configurations when they or the Secret change, since they may have been applied again,
    /// empty. Drops `written` when both have the authority.
    async fn work(&self, written: Wait) {
        let mut changes = self.changes();
        let mut written = Some(written);
        loop {
            let next = match self.write().await {
                Ok(is_complete) => {
                    written = written.filter(|_| !is_complete);
                    LOOK_MAX
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "Authority not written; trying again");
                    RETRY
                }
            };
            next_change(&mut changes, next).await;
        }
    }

    /// A stream with an item whenever the Secret or a configuration is created, changed or deleted.
    fn changes(&self) -> BoxStream<'static, ()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        stream::select_all([
            changes(secrets, object::CERTIFICATES),
            changes(mutating, object::WEBHOOK),
            changes(validating, object::LINT_WEBHOOK),
        ])
        .boxed()
    }

    /// Writes what the configurations lack. Returns true if both exist and have it.
    pub(crate) async fn write(&self) -> Result<bool, LeaderError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = object::CERTIFICATES;
        let secret = secrets.get(name).await.map_err(reading("Secret", name))?;
        let authorities = bundle(&secret).authorities;
        if authorities.is_empty() {
            return Ok(false);
        }
        let owner = self.owner().await?;
        let mutating = ApiResource::erase::<MutatingWebhookConfiguration>(&());
        let validating = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
        let mut is_complete = true;
        for (kind, name) in [(mutating, object::WEBHOOK), (validating, object::LINT_WEBHOOK)] {
            let api = Api::all_with(self.client.clone(), &kind);
            is_complete &= keep(&api, name, &authorities, &owner).await?;
        }
        Ok(is_complete)
    }

    /// The namespace, as the owner of cluster-scoped objects.
    async fn owner(&self) -> Result<OwnerReference, LeaderError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
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

/// Adds the authorities and the owner to a configuration, if it lacks them. Returns false if there is
/// none.
async fn keep(
    api: &Api<DynamicObject>,
    name: &str,
    authorities: &str,
    owner: &OwnerReference,
) -> Result<bool, LeaderError> {
    let kind = "webhook configuration";
    let there = api.get_opt(name).await.map_err(reading(kind, name))?;
    let Some(there) = there else { return Ok(false) };
    let owners = there.metadata.owner_references.unwrap_or_default();
    let trusted = trusting(&there.data, authorities);
    let is_owned = owners.iter().any(|it| it.uid == owner.uid);
    if is_owned && trusted.is_empty() {
        return Ok(true);
    }
    let version = there.metadata.resource_version.unwrap_or_default();
    let patch = json!({
        "metadata": {"resourceVersion": version, "ownerReferences": [owner]},
        "webhooks": trusted,
    });
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Strategic(patch)).await.map_err(writing(kind, name))?;
    tracing::info!(configuration = name, "Wrote authority and owner");
    Ok(true)
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
