//! The leader is killed at any write. Another replica continues from the state of the pods.

use std::{env, sync::Arc};

use anyhow::Context;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    api::{DeleteParams, ListParams},
    runtime::watcher::{self, Event, watcher},
};
use tests::{Check, ControlPlane, Scope, eventually, installation::Installation};

use super::site::{SOON, create, placed, pod, pods, with_fabrics};

/// Pods of each gang.
const PODS: usize = 8;
/// The variable that requests more runs than the default.
const RUNS_VARIABLE: &str = "DRANET_FABRIC_RUNS";
const RUNS: usize = 4;

pub(super) async fn whenever_the_leader_dies_no_group_is_split(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let runs = env::var_os(RUNS_VARIABLE).and_then(|text| text.to_str()?.parse().ok());
    let runs = runs.unwrap_or(RUNS);
    with_fabrics(plane, (2, 3), 2, &[], async |scope, installation| {
        for run in 0..runs {
            // Every write for a gang sets a mark or removes a gate. Steps of a prime number visit all
            // of them.
            let writes = 1 + run * 7 % (2 * PODS);
            one(scope, installation, run, writes)
                .await
                .with_context(|| format!("after {writes} writes"))?;
        }
        Ok(())
    })
    .await
}

/// Runs a gang whose leader dies after this number of writes to its pods.
async fn one(
    scope: &Scope,
    installation: &mut Installation<'_>,
    run: usize,
    writes: usize,
) -> anyhow::Result<()> {
    let labels = format!("gang=g{run}");
    let leader = installation.leading_fabric_controller().await?;
    let watch = watcher(scope.api::<Pod>(), watcher::Config::default().labels(&labels));
    let mut watch = std::pin::pin!(watch);
    // The initial list, which is empty.
    while !matches!(watch.try_next().await?, Some(Event::InitDone) | None) {}
    for index in 0..PODS {
        let mut pod = pod(&format!("g{run}-{index}"), &format!("g{run}"), PODS, false);
        pod.metadata.labels = Some([("gang".to_owned(), format!("g{run}"))].into());
        create(scope, &pod).await?;
    }
    let mut seen = 0;
    while seen < writes {
        if let Some(Event::Apply(pod)) = watch.try_next().await? {
            let annotations = pod.metadata.annotations.unwrap_or_default();
            seen += usize::from(annotations.contains_key("dranet.io/fabric-chosen"));
        }
    }
    installation.kill_fabric_controller(leader);
    placed(scope, &labels, PODS).await?;
    installation.start_fabric_controller(run + 10, &[]).await?;
    let now = DeleteParams::default().grace_period(0);
    scope.api::<Pod>().delete_collection(&now, &ListParams::default().labels(&labels)).await?;
    eventually(SOON, async || {
        let left = pods(scope, &labels).await?.len();
        Ok(Check::that(left == 0, || format!("{left} pods left")))
    })
    .await
}
