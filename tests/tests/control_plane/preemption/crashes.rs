//! The leader is killed after each step. Another replica goes on from the DeviceTaintRules.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{ResourceExt, api::ListParams};
use tests::{Check, ControlPlane, Scope, eventually, installation::Installation};

use super::site::{
    SOON, create, fill, is_aligned, names, nothing_kept, pod, rules, run, with_nodes,
};

/// What has happened when the leader dies.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Some devices are kept.
    FirstRule,
    /// All devices are kept.
    AllRules,
    /// A pod is evicted.
    Evicted,
    /// The evicted pod is gone.
    Gone,
    /// The claim of the pod is allocated.
    Allocated,
    /// The pod is bound.
    Bound,
}

/// The rules of a pod of one GPU and one NIC.
const RULES: usize = 2;

pub(super) async fn whenever_the_leader_dies_the_pod_is_bound(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_nodes(plane, 1, async |scope, installation| {
        let mut low = fill(scope, 1).await?;
        installation.start_preemptors(2, &[]).await?;
        let steps = [
            Step::FirstRule,
            Step::AllRules,
            Step::Evicted,
            Step::Gone,
            Step::Allocated,
            Step::Bound,
        ];
        for (index, step) in steps.into_iter().enumerate() {
            let name = format!("high-{index}");
            let leader = installation.leading_preemptor().await?;
            create(scope, pod(&name, Some("high"), 1)).await?;
            reached(scope, &name, step, low.len()).await.with_context(|| format!("{step:?}"))?;
            installation.kill_preemptor(leader);
            scope.bound(&name, SOON).await.with_context(|| format!("after {step:?}"))?;
            nothing_kept(scope).await.with_context(|| format!("after {step:?}"))?;
            is_aligned(scope, &name, 1).await?;
            let there = names(scope).await?;
            let left: Vec<_> = low.iter().filter(|name| !there.contains(*name)).collect();
            anyhow::ensure!(left.len() == 1, "after {step:?}, {left:?} have left");
            // The cluster is full again.
            scope.delete_pod(&name).await?;
            let victim = left[0].clone();
            create(scope, pod(&victim, None, 1)).await?;
            scope.bound(&victim, SOON).await?;
            run(scope, low.len()).await?;
            low.insert(victim);
            add_replica(installation, index).await?;
        }
        Ok(())
    })
    .await
}

async fn add_replica(installation: &mut Installation<'_>, index: usize) -> anyhow::Result<()> {
    installation.start_preemptor(index + 10, &[]).await
}

/// Waits until a step is done for a pod, with this number of pods before any left.
async fn reached(scope: &Scope, name: &str, step: Step, low: usize) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let pods = scope.api::<Pod>().list(&ListParams::default()).await?.items;
        let ending = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
        let others = pods.iter().filter(|pod| pod.name_any().starts_with("low")).count();
        let is_bound = pods.iter().any(|pod| {
            pod.name_any() == name && pod.spec.as_ref().is_some_and(|it| it.node_name.is_some())
        });
        let kept = rules(scope).await?.len();
        let is_done = match step {
            Step::FirstRule => kept > 0,
            Step::AllRules => kept == RULES,
            Step::Evicted => ending > 0 || others < low,
            Step::Gone => others < low,
            Step::Allocated => is_allocated(scope, name).await?,
            Step::Bound => is_bound,
        };
        Ok(Check::that(is_done || is_bound, || format!("{kept} kept, {ending} end, {others} left")))
    })
    .await
}

async fn is_allocated(scope: &Scope, pod: &str) -> anyhow::Result<bool> {
    let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?;
    Ok(claims.iter().any(|claim| {
        let is_own = claim.owner_references().iter().any(|owner| owner.name == pod);
        is_own && claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
    }))
}
