//! An API server that refuses our programs, fails or is slow, by its own means: a priority level without seats,
//! and webhooks that are not there or do not answer.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tests::installation::NAMESPACE;
use tokio::{net::TcpListener, time::sleep};

use super::super::kubelets::lasting;

/// The name of all objects here.
const NAME: &str = "tests-fault";

/// Answers every request of our programs with 429 for this time.
pub(super) async fn refuse(client: &Client, time: Duration) -> anyhow::Result<()> {
    let none = json!({
        "metadata": {"name": NAME},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    let ours = json!({
        "metadata": {"name": NAME},
        "spec": {
            "priorityLevelConfiguration": {"name": NAME},
            "matchingPrecedence": 2,
            "rules": [{
                "subjects": [{
                    "kind": "ServiceAccount",
                    "serviceAccount": {"namespace": NAMESPACE, "name": "*"},
                }],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true,
                }],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    });
    let levels: Api<PriorityLevelConfiguration> = Api::all(client.clone());
    let schemas: Api<FlowSchema> = Api::all(client.clone());
    create(&levels, none).await?;
    create(&schemas, ours).await?;
    sleep(time).await;
    delete(&schemas).await?;
    delete(&levels).await
}

/// Answers every write of our programs with 500 for this time.
pub(super) async fn fail_writes(client: &Client, time: Duration) -> anyhow::Result<()> {
    beside_webhook(client, "https://127.0.0.1:1/", "Fail", time).await
}

/// Takes a second for every write of our programs for this time.
pub(super) async fn slow_writes(client: &Client, time: Duration) -> anyhow::Result<()> {
    // The kernel accepts connections, and nobody answers.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("https://{}/", silent.local_addr()?);
    beside_webhook(client, &url, "Ignore", time).await
}

/// Has a webhook at this URL asked about every write of our programs for this time.
async fn beside_webhook(
    client: &Client,
    url: &str,
    failure_policy: &str,
    time: Duration,
) -> anyhow::Result<()> {
    let ours =
        format!("request.userInfo.username.startsWith('system:serviceaccount:{NAMESPACE}:')");
    let webhook = json!({
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "fault.tests.dranet.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": failure_policy,
            "timeoutSeconds": 1,
            "rules": [{
                "apiGroups": ["*"], "apiVersions": ["*"],
                "operations": ["*"], "resources": ["*/*"],
            }],
            "matchConditions": [{"name": "ours", "expression": ours}],
            "clientConfig": {"url": url},
        }],
    });
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    create(&webhooks, webhook).await?;
    sleep(time).await;
    delete(&webhooks).await
}

async fn create<K>(api: &Api<K>, object: Value) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    let params = PostParams::default();
    lasting(|| api.create(&params, &object)).await?;
    Ok(())
}

async fn delete<K>(api: &Api<K>) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    lasting(|| async { api.delete(NAME, &DeleteParams::default()).await.map(drop) }).await?;
    Ok(())
}
