//! Next to an upstream DRANET, each claim is pinned to one cell. A pod that waits for its cell gets
//! an event if another cell is free.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    events::v1::Event,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, eventually, gb300, installation::Installation, suite::Test,
    with_scope,
};

const SOON: Duration = Duration::from_mins(2);

/// The devices of each NUMA node of a GB300, as their drivers name them.
const CELLS: [[&str; 4]; 2] = [
    ["gpu-0", "gpu-1", "pci-0101-00-00-0", "pci-0102-00-00-0"],
    ["gpu-2", "gpu-3", "pci-0103-00-00-0", "pci-0104-00-00-0"],
];

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![pods_are_spread_over_cells_and_free_cells_are_reported];
    all.into_iter().map(Test::alone).collect()
}

async fn pods_are_spread_over_cells_and_free_cells_are_reported(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let node = installation.gb300("gb300").await?;
        // The graph stays, and the NICs are published by upstream.
        let slices: Api<ResourceSlice> = Api::all(scope.client());
        let ours = format!("spec.nodeName={node},spec.driver=dra.net");
        let ours = ListParams::default().fields(&ours);
        slices.delete_collection(&DeleteParams::default(), &ours).await?;
        scope.apply(gb300::nic_slice(&node)?).await?;
        installation.start_admission().await?;

        // Created together, before any claim exists.
        let names = ["a", "b", "c", "d"];
        futures::future::try_join_all(names.map(|name| create(scope, name))).await?;
        let mut cells = BTreeMap::new();
        for name in names {
            let pod = scope.bound(name, SOON).await?;
            let plan = pod.annotations()["dranet.io/plan"].clone();
            let cell = cell(&devices(scope, name).await?)?;
            assert!(plan.contains(&format!("pinned to numa{cell} of ")), "{cell}: {plan}");
            cells.insert(name, cell);
        }
        assert_eq!(cells.values().filter(|cell| **cell == 0).count(), 2, "{cells:?}");

        // The next waits for a cell; devices of the other one become free.
        create(scope, "waiting").await?;
        scope.unschedulable("waiting", SOON).await?;
        let waiting = scope.api::<Pod>().get("waiting").await?;
        let own = usize::from(waiting.annotations()["dranet.io/plan"].contains("pinned to numa1 "));
        let (other, _) = cells.iter().find(|(_, cell)| **cell != own).context("two cells")?;
        scope.delete_pod(other).await?;
        eventually(SOON, async || {
            let events = scope.api::<Event>().list(&ListParams::default()).await?;
            let text = events.iter().find_map(|event| {
                (event.reason.as_deref() == Some("OtherCellFree")).then(|| event.note.clone())?
            });
            let Some(text) = text else { return Ok(Check::NotYet("no event".to_owned())) };
            assert!(text.contains(&format!("pinned to numa{own} of ")), "{text}");
            assert!(text.contains(&format!("while numa{} of ", 1 - own)), "{text}");
            Ok(Check::Done(()))
        })
        .await
    })
    .await
}

async fn create(scope: &Scope, name: &str) -> anyhow::Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"dranet.io/aligned-nics": "1"}},
        "spec": {"containers": [{
            "name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }]},
    }))?;
    scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// The devices that a pod's claim holds.
async fn devices(scope: &Scope, pod: &str) -> anyhow::Result<Vec<String>> {
    let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?;
    let own = claims.items.into_iter().find(|claim| claim.name_any().starts_with(pod));
    let allocation = own.context("the pod has a claim")?.status.and_then(|it| it.allocation);
    let results = allocation.and_then(|it| it.devices?.results).unwrap_or_default();
    Ok(results.into_iter().map(|result| result.device).collect())
}

/// The NUMA node that all of these are on.
fn cell(devices: &[String]) -> anyhow::Result<usize> {
    let holds = |cell: &[&str; 4]| devices.iter().all(|it| cell.contains(&it.as_str()));
    let cell = CELLS.iter().position(holds);
    cell.with_context(|| format!("{devices:?} are on two NUMA nodes"))
}
