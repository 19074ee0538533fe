//! Machines with NICs for several purposes: the real scheduler gives pods compute NICs only, on what
//! the real driver publishes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{Device, ResourceClaim, ResourceSlice},
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use tests::{
    ControlPlane, Scope, installation::Installation, machine::Machine, suite::Test, with_scope,
};

use super::churn::create;

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![pods_get_compute_nics_from_the_scheduler];
    all.into_iter().map(Test::alone).collect()
}

/// Machines, and the rate of their compute NICs in gigabits per second.
const MACHINES: [(&str, i64); 5] = [
    ("dgx-b200", 400),
    ("dgx-h100", 400),
    ("dgx-h100+roce", 400),
    ("gb200-nvl72", 400),
    ("gb200-nvl72+roce", 400),
];

/// GPUs and NICs of pods that are created one after the other.
const PODS: [(u32, u32); 4] = [(1, 1), (1, 2), (2, 2), (4, 4)];

async fn pods_get_compute_nics_from_the_scheduler(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    for (fixture, rate) in MACHINES {
        with_scope(plane.client(), async |scope| {
            let mut installation = Installation::install(&plane, scope).await?;
            let (driver, resource) = ("gpu.nvidia.com", "nvidia.com/gpu");
            let machine = Machine { fixture, size: "", driver, resource };
            installation.machine("one", machine).await?;
            installation.start_admission().await?;
            for (number, (gpus, nics)) in PODS.into_iter().enumerate() {
                // A GB200 node has two GPUs on each NUMA node.
                if gpus == 4 && fixture.starts_with("gb200") {
                    continue;
                }
                let name = format!("pod-{number}");
                create(scope, &pod(&name, gpus, nics)?).await?;
                scope.bound(&name, SOON).await.with_context(|| format!("{fixture} {name}"))?;
                let nics_of_pod = nics_of(scope, &name).await?;
                assert_eq!(u32::try_from(nics_of_pod.len())?, nics, "{fixture} {name}");
                for nic in nics_of_pod {
                    let attributes = nic.attributes.unwrap_or_default();
                    let role = attributes.get("dranet.io/role").and_then(|it| it.string.clone());
                    let found = attributes.get("dranet.io/rateGbps").and_then(|it| it.int);
                    assert_eq!(role.as_deref(), Some("compute"), "{fixture} {}", nic.name);
                    assert_eq!(found, Some(rate), "{fixture} {}", nic.name);
                }
                scope.delete_pod(&name).await?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

fn pod(name: &str, gpus: u32, nics: u32) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {
            "dranet.io/aligned-nics": nics.to_string(),
            "dranet.io/pairing": "group",
            "dranet.io/alignment": "numa",
        }},
        "spec": {"containers": [{
            "name": "nccl",
            "image": "nccl",
            "resources": {
                "limits": {"nvidia.com/gpu": gpus.to_string()},
                "requests": {"nvidia.com/gpu": gpus.to_string()},
            },
        }]},
    }))?)
}

/// The NICs of the pod's claim, as they are published.
async fn nics_of(scope: &Scope, pod: &str) -> anyhow::Result<Vec<Device>> {
    let all = ListParams::default();
    let slices = Api::<ResourceSlice>::all(scope.client()).list(&all).await?;
    let mut published: BTreeMap<(String, String), Device> = BTreeMap::new();
    for slice in slices.items.into_iter().filter(|slice| slice.spec.driver == "dra.net") {
        for device in slice.spec.devices.into_iter().flatten() {
            published.insert((slice.spec.pool.name.clone(), device.name.clone()), device);
        }
    }
    let claims: Api<ResourceClaim> = scope.api();
    let claims = claims.list(&all).await?.items;
    let claim = claims.into_iter().find(|claim| claim.name_any().starts_with(pod));
    let status = claim.context("the pod has a claim")?.status.context("it has a status")?;
    let results = status.allocation.and_then(|allocation| allocation.devices?.results);
    let nics = results.unwrap_or_default().into_iter().filter(|result| result.driver == "dra.net");
    nics.map(|nic| {
        let key = (nic.pool, nic.device);
        published.get(&key).cloned().with_context(|| format!("{key:?} is published"))
    })
    .collect()
}
