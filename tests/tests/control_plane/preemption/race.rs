//! The weaker mode, in which devices are only kept until they are free: how often another pod is faster.

use std::sync::Arc;

use tests::{Check, ControlPlane, eventually, setting};

use super::site::{GPUS, SOON, clear, create, fill, metric, nothing_kept, pod, report, with_nodes};

/// The variable that requests more races than the default.
const RACES_VARIABLE: &str = "DRANET_RACES";
const RACES: u64 = 3;

/// Pods of lower priority wait for the same devices. A pod that loses preempts again, so it is bound in
/// the end.
pub(super) async fn pods_that_lose_the_race_preempt_again(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let races: u64 = setting(RACES_VARIABLE, RACES)?;
    with_nodes(plane, 1, async |scope, installation| {
        installation.start_preemptors(1, &["--keep=rules"]).await?;
        for race in 1..=races {
            fill(scope, 1).await?;
            for rival in 0..GPUS {
                create(scope, pod(&format!("rival-{rival}"), None, 1)).await?;
            }
            scope.unschedulable(&format!("rival-{}", GPUS - 1), SOON).await?;
            create(scope, pod("high", Some("high"), 1)).await?;
            scope.bound("high", SOON).await?;
            let counter = "dranet_preemptions_total{result=\"BoundLater\"}";
            eventually(SOON, async || {
                let bound = metric(installation, counter).await?;
                Ok(Check::that(bound == race, || format!("{bound} of {race} pods are bound")))
            })
            .await?;
            nothing_kept(scope).await?;
            clear(scope).await?;
        }
        let lost = metric(installation, "dranet_preemptions_total{result=\"Lost\"}").await?;
        report(&format!("{races} pods lost {lost} races before they were bound"));
        Ok(())
    })
    .await
}
