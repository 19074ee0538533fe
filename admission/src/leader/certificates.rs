//! The certificate of the webhook's own: kept in a Secret, and its authority
//! written into the webhook configurations.

use super::{Leader, LeaderError, reading, writing};
use crate::server::certificate::{data, held};
use cluster_model::names::object;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use process::chain::Chain;
use serde_json::{Value, json};
use std::time::Duration;

/// How often the Secret and the configurations are looked at: somebody may have
/// applied them again, empty.
const PERIOD: Duration = Duration::from_secs(10);

impl Leader {
    pub(super) async fn keep_certificates(&self) {
        let Some(names) = &self.names else { return };
        loop {
            if let Err(error) = self.keep_certificates_once(names).await {
                tracing::warn!(error = %Chain(&error), "Certificates not kept; trying again");
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn keep_certificates_once(&self, names: &[String]) -> Result<(), LeaderError> {
        let client = &self.templates.client;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let name = object::CERTIFICATES;
        let mut secret = secrets.get(name).await.map_err(reading("Secret", name))?;
        if let Some(renewed) = held(&secret).renewed(names, Timestamp::now())? {
            secret.data = Some(data(&renewed));
            // Refused where another has written it since: looked at again next time.
            let written = secrets.replace(name, &PostParams::default(), &secret).await;
            secret = written.map_err(writing("Secret", name))?;
            tracing::info!(?names, "Certificate renewed");
        }
        let authorities = held(&secret).authorities;
        let mutating = ApiResource::erase::<MutatingWebhookConfiguration>(&());
        let validating = ApiResource::erase::<ValidatingWebhookConfiguration>(&());
        for (kind, name) in [(mutating, object::WEBHOOK), (validating, object::LINT_WEBHOOK)] {
            trust(&Api::all_with(client.clone(), &kind), name, &authorities).await?;
        }
        Ok(())
    }
}

/// Makes a configuration trust the authorities, if it is there and does not.
async fn trust(api: &Api<DynamicObject>, name: &str, authorities: &str) -> Result<(), LeaderError> {
    let kind = "webhook configuration";
    let there = api.get_opt(name).await.map_err(reading(kind, name))?;
    let Some(there) = there else { return Ok(()) };
    let version = there.metadata.resource_version.unwrap_or_default();
    let Some(patch) = trusting(&there.data, &version, authorities) else { return Ok(()) };
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Strategic(patch)).await.map_err(writing(kind, name))?;
    tracing::info!(configuration = name, "Authority written");
    Ok(())
}

/// The patch by which every webhook of a configuration trusts the authorities;
/// `None` where all do.
fn trusting(configuration: &Value, version: &str, authorities: &str) -> Option<Value> {
    let bundle = json!(ByteString(authorities.as_bytes().to_vec()));
    let webhooks = configuration["webhooks"].as_array()?;
    let untrusting = webhooks.iter().filter(|hook| hook["clientConfig"]["caBundle"] != bundle);
    let patches: Vec<_> = untrusting
        .map(|hook| json!({"name": hook["name"], "clientConfig": {"caBundle": bundle}}))
        .collect();
    (!patches.is_empty())
        .then(|| json!({"metadata": {"resourceVersion": version}, "webhooks": patches}))
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
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [hook("b", "UEVN".into()), hook("c", "UEVN".into())],
        });
        assert_eq!(trusting(&configuration, "7", "PEM"), Some(expected));
        let content = json!({"webhooks": [hook("a", "UEVN".into())]});
        assert_eq!(trusting(&content, "7", "PEM"), None);
        assert_eq!(trusting(&Value::Null, "7", "PEM"), None);
    }
}
