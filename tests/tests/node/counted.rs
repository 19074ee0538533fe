//! The GPUs of the node as an extended resource, with a real kubelet: it keeps the amount while the driver is
//! replaced, and no pod that requests some of it ends when the kubelet starts again.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    node::{Machine, pods, with_machine},
    suite::Test,
};

const RESOURCE: &str = "example.org/aligned-gpus";
const FLAG: &str = "--counted=gpu.nvidia.com=example.org/aligned-gpus";
const GPUS: &str = "4";
const SOON: Duration = Duration::from_mins(1);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![a_kubelet_counts_gpus];
    all.into_iter().map(Test::alone).collect()
}

async fn a_kubelet_counts_gpus(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let whole = with_machine(&plane, "counted", &[], async |machine, scope| {
        machine.start_driver(&[FLAG]).await?;
        allocatable(scope, machine, GPUS).await?;
        pods::create(scope, &pod("first", machine, two())?).await?;
        run(scope, &["first"]).await?;

        let old = machine.replace_driver("new", &[FLAG]).await?;
        old.terminate(Duration::from_secs(10)).await?;
        allocatable(scope, machine, GPUS).await?;
        machine.restart_kubelet().await?;
        allocatable(scope, machine, GPUS).await?;
        pods::create(scope, &pod("second", machine, two())?).await?;
        run(scope, &["second", "first"]).await?;

        // Without the driver no pod comes that requests some, and those that run stay.
        machine.kill_driver();
        machine.restart_kubelet().await?;
        allocatable(scope, machine, "0").await?;
        pods::create(scope, &pod("other", machine, json!({}))?).await?;
        run(scope, &["other", "second", "first"]).await?;
        for name in ["other", "second", "first"] {
            pods::delete(scope, name).await?;
        }
        Ok(())
    });
    Box::pin(whole).await
}

/// Waits until the node has this amount of the resource.
async fn allocatable(scope: &Scope, machine: &Machine, amount: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(scope.client());
    eventually(SOON, async || {
        let status = nodes.get(&machine.name).await?.status.unwrap_or_default();
        let now = status.allocatable.and_then(|mut it| it.remove(RESOURCE));
        let is_it = now.as_ref().is_some_and(|now| now.0 == amount);
        Ok(Check::that(is_it, || format!("{now:?}")))
    })
    .await
}

/// Waits until these pods run. The first one is new: the kubelet has then decided on the others too.
async fn run(scope: &Scope, pods: &[&str]) -> anyhow::Result<()> {
    for name in pods {
        pods::running(scope, name).await?;
    }
    Ok(())
}

/// What admission writes beside a claim for two GPUs.
fn two() -> Value {
    json!({"limits": {RESOURCE: "2"}})
}

/// A pod without a claim whose container has these resources.
fn pod(name: &str, machine: &Machine, resources: Value) -> anyhow::Result<Pod> {
    let mut pod = serde_json::to_value(pods::pod(name, &machine.name, json!({}))?)?;
    let spec = &mut pod["spec"];
    spec["resourceClaims"] = json!([]);
    spec["containers"][0]["resources"] = resources;
    Ok(serde_json::from_value(pod)?)
}
