//! Plays the kubelet for pods of `kubectl dranet`: the nodes have none, so a loop writes the status that
//! one would.

use std::{process::Output, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tests::{Check, Scope, eventually};
use tokio::process::Child;

const SOON: Duration = Duration::from_mins(1);

/// The interval of the loop.
const PERIOD: Duration = Duration::from_millis(100);

/// The output of a program, while `look` is called again and again to act as a kubelet.
pub(super) async fn ended(
    child: Child,
    look: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<Output> {
    let looks = async {
        loop {
            look().await?;
            tokio::time::sleep(PERIOD).await;
        }
    };
    tokio::select! {
        output = tokio::time::timeout(SOON, child.wait_with_output()) => {
            Ok(output.context("it runs on")??)
        }
        failed = looks => failed,
    }
}

/// Writes the status of a pod with one container.
pub(super) async fn report(
    scope: &Scope,
    pod: &str,
    phase: &str,
    state: &Value,
) -> anyhow::Result<()> {
    report_all(scope, pod, phase, &[("main", state.clone())]).await
}

/// Writes the status of a pod and of its containers.
pub(super) async fn report_all(
    scope: &Scope,
    pod: &str,
    phase: &str,
    containers: &[(&str, Value)],
) -> anyhow::Result<()> {
    let container = |(name, state): &(&str, Value)| {
        json!({
            "name": name, "ready": true, "restartCount": 0, "image": "main", "imageID": "main",
            "state": state,
        })
    };
    let status = json!({ "status": {
        "phase": phase,
        "podIP": "10.0.0.1",
        "podIPs": [{ "ip": "10.0.0.1" }],
        "containerStatuses": containers.iter().map(container).collect::<Vec<_>>(),
    } });
    let params = PatchParams::default();
    match scope.api::<Pod>().patch_status(pod, &params, &Patch::Merge(status)).await {
        Ok(_) => Ok(()),
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Checks that none of these pods is left, and waits until no claim is.
pub(super) async fn nothing_left(scope: &Scope, pods: Vec<Pod>) -> anyhow::Result<()> {
    anyhow::ensure!(pods.is_empty(), "{} pods are left", pods.len());
    eventually(SOON, async || {
        let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?.items;
        Ok(Check::that(claims.is_empty(), || format!("{} claims are left", claims.len())))
    })
    .await
}
