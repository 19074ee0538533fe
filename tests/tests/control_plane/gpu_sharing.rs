//! GPUs that claims can share, with the real scheduler: pods that ask for whole GPUs get GPUs of
//! their own, and pods with a share never get these.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use tests::{ControlPlane, Scope, gb300, installation::Installation, suite::Test, with_scope};

use super::churn::create;

const SOON: Duration = Duration::from_secs(30);

/// The memory of a GPU, as NVIDIA's driver published it.
const MEMORY: &str = "284208Mi";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![whole_gpus_stay_whole_beside_shares];
    all.into_iter().map(Test::alone).collect()
}

async fn whole_gpus_stay_whole_beside_shares(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let node = installation.gb300("one").await?;
        scope.apply(shared_by_two(gb300::gpu_slice(&node)?)?).await?;
        installation.start_admission().await?;

        // Without a capacity, a claim takes one share of the first GPU that has one left.
        let first = share(scope, "share-0").await?;
        let mut whole = BTreeSet::new();
        for name in ["whole-0", "whole-1", "whole-2"] {
            create(scope, &aligned(name)?).await?;
            let gpu = gpu(scope, &scope.bound(name, SOON).await?).await?;
            assert!(gpu != first && whole.insert(gpu.clone()), "{name}: {gpu}, {first}, {whole:?}");
        }
        create(scope, &aligned("whole-3")?).await?;
        scope.unschedulable("whole-3", SOON).await?;
        assert_eq!(share(scope, "share-1").await?, first, "the only GPU with a share left");
        claim(scope, "share-2").await?;
        create(scope, &holder("share-2")?).await?;
        scope.unschedulable("share-2", SOON).await?;
        Ok(())
    })
    .await
}

/// The slice as the driver publishes it with `--consumable-shares=2`.
fn shared_by_two(mut slice: DynamicObject) -> anyhow::Result<DynamicObject> {
    let range = |default: &str, min: &str, max: &str, step: &str| json!({"default": default, "validRange": {"min": min, "max": max, "step": step}});
    for gpu in slice.data["spec"]["devices"].as_array_mut().context("a slice has devices")? {
        gpu["allowMultipleAllocations"] = true.into();
        gpu["capacity"] = json!({
            "memory": {"value": MEMORY, "requestPolicy": range("0", "0", MEMORY, "1Mi")},
            "shares": {"value": "2", "requestPolicy": range("1", "1", "2", "1")},
        });
    }
    Ok(slice)
}

fn aligned(name: &str) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"dranet.io/aligned-nics": "1"}},
        "spec": {"containers": [{
            "name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }]},
    }))?)
}

/// A pod with a claim of its own.
fn holder(name: &str) -> anyhow::Result<Pod> {
    let claim: Value = json!([{"name": "gpu", "resourceClaimName": name}]);
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "main"}], "resourceClaims": claim},
    }))?)
}

/// Creates a pod with a share of a GPU; returns the GPU.
async fn share(scope: &Scope, name: &str) -> anyhow::Result<String> {
    claim(scope, name).await?;
    create(scope, &holder(name)?).await?;
    scope.bound(name, SOON).await?;
    gpu_of(&scope.api::<ResourceClaim>().get(name).await?)
}

/// Creates a claim for one GPU that names no capacity.
async fn claim(scope: &Scope, name: &str) -> anyhow::Result<()> {
    let claim = json!({
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}},
    });
    let claims = scope.api::<ResourceClaim>();
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    Ok(())
}

/// The GPU of a pod with a claim by admission.
async fn gpu(scope: &Scope, pod: &Pod) -> anyhow::Result<String> {
    let statuses = pod.status.as_ref().and_then(|it| it.resource_claim_statuses.as_ref());
    let name = statuses.into_iter().flatten().find_map(|it| it.resource_claim_name.as_ref());
    gpu_of(&scope.api::<ResourceClaim>().get(name.context("it has a claim")?).await?)
}

fn gpu_of(claim: &ResourceClaim) -> anyhow::Result<String> {
    let status = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = status.and_then(|it| it.devices.as_ref()?.results.as_ref());
    let mut results = results.into_iter().flatten();
    let gpu = results.find(|result| result.driver == "gpu.nvidia.com").context("a GPU")?;
    Ok(gpu.device.clone())
}
