//! Gangs whose room is gone after their gates were removed.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{ResourceExt, api::ListParams};
use serde_json::json;
use tests::{Check, ControlPlane, SchedulerConfig, Scope, eventually, installation::Installation};

use super::{
    gangs::{job, run},
    site::{SOON, fabrics, is_held, node, placed, pods, says, with_fabrics},
};

/// A scheduler that takes no pod of the tests.
fn absent() -> SchedulerConfig {
    let mut config = SchedulerConfig::default();
    config.more.insert("profiles".into(), json!([{"schedulerName": "nobody"}]));
    config
}

/// A scheduler with a short backoff.
fn present() -> SchedulerConfig {
    let mut config = SchedulerConfig::default();
    config.more.insert("podMaxBackoffSeconds".into(), json!(1));
    config
}

/// Runs a job of two pods whose fabric loses a node after the gates were removed and before the
/// scheduler has seen the pods. Returns the labels of its pods and its fabric.
async fn run_and_lose_a_node(
    plane: &ControlPlane,
    scope: &Scope,
    installation: &Installation<'_>,
) -> anyhow::Result<(String, String)> {
    plane.restart_scheduler(&absent()).await?;
    let labels = run(scope, &job("train", 2, true)).await?;
    eventually(SOON, async || {
        let pods = pods(scope, &labels).await?;
        let released = pods.iter().filter(|pod| !is_held(pod)).count();
        Ok(Check::that(released == 2, || format!("{released} of 2 gates are removed")))
    })
    .await?;
    let pods = pods(scope, &labels).await?;
    let chosen = super::site::on_fabrics(&pods, &fabrics(scope).await?);
    let fabric = chosen.into_iter().next().context("a fabric is chosen")?;
    let on = fabrics(scope).await?;
    let lost = on.iter().find(|(_, name)| **name == fabric).context("it has nodes")?.0;
    installation.remove_node(lost).await?;
    plane.restart_scheduler(&present()).await?;
    Ok((labels, fabric))
}

/// The pod that has no place says so, and where there is room; it is told when it has a place.
pub(super) async fn a_gang_whose_room_is_gone_says_so(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let test_plane = Arc::clone(&plane);
    with_fabrics(plane, (2, 2), 1, &[], async |scope, installation| {
        let (labels, fabric) = run_and_lose_a_node(&test_plane, scope, installation).await?;
        let message = says(scope, &labels, 1, "FabricFull").await?;
        assert!(message.contains("has room for the whole group"), "{message}");
        let stuck = pods(scope, &labels).await?.into_iter().find(|pod| node(pod).is_none());
        let stuck = stuck.context("one pod waits")?.name_any();
        about(scope, &stuck, "FabricFull").await?;
        about_each(scope, &labels, "FabricChosen").await?;
        // A new node of the fabric is enough.
        let on = fabrics(scope).await?;
        let kept = on.iter().find(|(_, name)| **name == fabric).context("a node is left")?.0;
        installation.add_copy(kept, "spare").await?;
        assert_eq!(placed(scope, &labels, 2).await?, fabric);
        says(scope, &labels, 1, "FabricChosen").await.map(drop)
    })
    .await
}

/// Where the operator allows evictions, the whole gang moves to a fabric with room.
pub(super) async fn a_gang_whose_room_is_gone_moves(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let test_plane = Arc::clone(&plane);
    with_fabrics(plane, (2, 2), 1, &["--full-fabric=evict"], async |scope, installation| {
        installation.apply_component("fabric-evict").await?;
        let (labels, fabric) = run_and_lose_a_node(&test_plane, scope, installation).await?;
        eventually(SOON, async || {
            // There is no kubelet to end evicted pods.
            for pod in pods(scope, &labels).await? {
                if pod.metadata.deletion_timestamp.is_some() {
                    scope.delete_pod(&pod.name_any()).await?;
                }
            }
            let on = fabrics(scope).await?;
            let pods = pods(scope, &labels).await?;
            let bound = pods.iter().filter_map(node).filter_map(|node| on.get(node));
            let there = bound.filter(|now| **now != fabric).count();
            Ok(Check::that(there == 2, || format!("{there} of 2 have moved")))
        })
        .await
    })
    .await
}

/// Waits for an event with this reason about this pod.
async fn about(scope: &Scope, pod: &str, reason: &str) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let events = scope.api::<Event>().list(&ListParams::default()).await?;
        let named = |event: &&Event| {
            event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(pod))
        };
        let reasons: Vec<_> =
            events.iter().filter(named).filter_map(|event| event.reason.clone()).collect();
        let there = reasons.iter().any(|it| it == reason);
        Ok(Check::that(there, || format!("events of {pod}: {reasons:?}")))
    })
    .await
}

/// Waits for an event with this reason about each pod.
async fn about_each(scope: &Scope, labels: &str, reason: &str) -> anyhow::Result<()> {
    let pods: Vec<Pod> = pods(scope, labels).await?;
    for pod in pods {
        about(scope, &pod.name_any(), reason).await?;
    }
    Ok(())
}
