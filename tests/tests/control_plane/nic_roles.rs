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
    ControlPlane, Scope,
    installation::Installation,
    machine::{AMD_CLASS, Machine},
    suite::Test,
    with_scope,
};

use super::churn::create;

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![pods_get_compute_nics_from_the_scheduler];
    all.into_iter().map(Test::alone).collect()
}

/// A recorded machine and what pods get on it.
struct Case {
    fixture: &'static str,
    driver: &'static str,
    resource: &'static str,
    /// The rate of its compute NICs in gigabits per second.
    rate: i64,
    /// GPUs and NICs of pods that are created one after the other.
    pods: &'static [(u32, u32)],
}

impl Case {
    const fn nvidia(fixture: &'static str, rate: i64, pods: &'static [(u32, u32)]) -> Self {
        Self { fixture, driver: "gpu.nvidia.com", resource: "nvidia.com/gpu", rate, pods }
    }
}

/// A machine with four GPUs and NICs on each NUMA node, and one with two.
const OF_FOUR: &[(u32, u32)] = &[(1, 1), (1, 2), (2, 2), (4, 4)];
const OF_TWO: &[(u32, u32)] = &[(1, 1), (1, 2), (2, 2)];

const CASES: [Case; 8] = [
    Case::nvidia("dgx-b200", 400, OF_FOUR),
    Case::nvidia("dgx-h100", 400, OF_FOUR),
    Case::nvidia("dgx-h100+roce", 400, OF_FOUR),
    Case::nvidia("gb200-nvl72", 400, OF_TWO),
    Case::nvidia("gb200-nvl72+roce", 400, OF_TWO),
    // Eight GPUs share four NICs.
    Case::nvidia("aws-p4d", 100, &[(1, 1), (1, 2), (4, 2)]),
    // A virtual machine with the hypervisor's topology file.
    Case::nvidia("h200-vm-8gpu", 400, OF_FOUR),
    Case {
        fixture: "azure-mi300x",
        driver: "gpu.amd.com",
        resource: "amd.com/gpu",
        rate: 400,
        pods: OF_FOUR,
    },
];

async fn pods_get_compute_nics_from_the_scheduler(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    for Case { fixture, driver, resource, rate, pods } in CASES {
        with_scope(plane.client(), async |scope| {
            let mut installation = Installation::install(&plane, scope).await?;
            let machine = Machine { fixture, size: "", driver, resource };
            scope.apply_yaml(AMD_CLASS).await?;
            installation.machine("one", machine).await?;
            installation.start_admission().await?;
            for (number, (gpus, nics)) in pods.iter().enumerate() {
                let name = format!("pod-{number}");
                create(scope, &pod(&name, resource, *gpus, *nics)?).await?;
                scope.bound(&name, SOON).await.with_context(|| format!("{fixture} {name}"))?;
                let nics_of_pod = nics_of(scope, &name).await?;
                assert_eq!(u32::try_from(nics_of_pod.len())?, *nics, "{fixture} {name}");
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
        .await
        .with_context(|| fixture)?;
    }
    Ok(())
}

fn pod(name: &str, resource: &str, gpus: u32, nics: u32) -> anyhow::Result<Pod> {
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
                "limits": {resource: gpus.to_string()},
                "requests": {resource: gpus.to_string()},
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
