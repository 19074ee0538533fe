//! Pods that the attempts of this suite create.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};
use tests::{Check, Scope, eventually};

const SOON: Duration = Duration::from_mins(1);

/// A pod with one GPU and these annotations.
pub(super) fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [
            {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    })
}

/// Creates a pod, as a controller does that tries again.
pub(super) async fn create(scope: &Scope, pod: &Value) -> anyhow::Result<()> {
    let pod: Pod = serde_json::from_value(pod.clone())?;
    eventually(SOON, async || match scope.api::<Pod>().create(&PostParams::default(), &pod).await {
        Ok(_) => Ok(Check::Done(())),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Check::Done(())),
        Err(error) => Ok(Check::NotYet(error.to_string())),
    })
    .await
    .context("the pod is not created")
}

/// The number of claims that were made for the pod.
pub(super) fn claims(pod: &Pod) -> usize {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    statuses.into_iter().flatten().filter(|it| it.resource_claim_name.is_some()).count()
}
