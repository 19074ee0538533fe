//! What breaks below and beside the programs: the API server hangs, etcd is killed, the leader of
//! admission dies while pods are created. Nothing is lost, and no program has to restart.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Process, Scope, eventually,
    installation::{Installation, Replica},
    suite::Test,
    with_scope,
};

use super::pods::{claims, create, pod};

const SOON: Duration = Duration::from_mins(1);
/// How long the API server hangs.
const FROZEN: Duration = Duration::from_secs(20);
const PODS: usize = 150;
/// The pods that exist when the leader is killed.
const BEFORE: usize = PODS / 2;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![
        an_api_server_that_hangs_loses_nothing,
        a_killed_etcd_loses_nothing,
        every_pod_gets_its_claim_although_the_leader_dies,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn an_api_server_that_hangs_loses_nothing(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_installation(&plane, async |scope, installation| {
        placed(scope, "before").await?;
        let pids = pids(installation)?;
        plane.freeze_apiserver(FROZEN).await?;
        placed(scope, "after").await?;
        anyhow::ensure!(self::pids(installation)? == pids, "a program has restarted");
        let seconds = FROZEN.as_secs();
        Ok(format!("after {seconds} s a pod was created and placed; no program had ended"))
    })
    .await
}

async fn a_killed_etcd_loses_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_installation(&plane, async |scope, installation| {
        placed(scope, "before").await?;
        let pids = pids(installation)?;
        plane.restart_etcd().await?;
        placed(scope, "after").await?;
        anyhow::ensure!(self::pids(installation)? == pids, "a program has restarted");
        let before = scope.api::<Pod>().get("before").await?;
        anyhow::ensure!(claims(&before) == 1, "the first pod has lost its claim");
        Ok("the next pod was created and placed; no program had ended".to_owned())
    })
    .await
}

async fn every_pod_gets_its_claim_although_the_leader_dies(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        let everyone = "--network-namespace=*";
        installation.start_replicas(2, &[everyone]).await?;
        create_all(scope, 0..BEFORE).await?;
        let leader = installation.leading_replica().await?;
        installation.kill_replica(leader).await?;
        create_all(scope, BEFORE..PODS).await?;
        eventually(SOON, async || {
            let pods = scope.api::<Pod>().list(&ListParams::default()).await?.items;
            let with_claim = pods.iter().filter(|pod| claims(pod) == 1).count();
            Ok(Check::that(with_claim == PODS, || format!("{with_claim} of {PODS} have a claim")))
        })
        .await?;
        Ok(format!("all {PODS} pods, each with a template of its own, have their claim"))
    })
    .await
}

/// A test with a GB300 node, admission and the extender.
async fn with_installation(
    plane: &Arc<ControlPlane>,
    test: impl AsyncFnOnce(&Scope, &Installation<'_>) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        installation.start_extender().await?;
        test(scope, &installation).await
    })
    .await;
    plane.restart_scheduler(&tests::SchedulerConfig::default()).await?;
    outcome
}

/// The IDs of the processes of admission and the extender, which have not ended.
fn pids(installation: &Installation<'_>) -> anyhow::Result<Vec<u32>> {
    let admission = installation.replicas().iter().map(Replica::process);
    let all: Vec<_> = admission.chain([installation.extender()?.process()]).collect();
    if let Some(ended) = all.iter().find(|process| process.has_ended()) {
        anyhow::bail!("{} has ended: {}", ended.name(), ended.tail(20));
    }
    Ok(all.into_iter().map(Process::pid).collect())
}

/// Creates an aligned pod, and waits for its node.
async fn placed(scope: &Scope, name: &str) -> anyhow::Result<()> {
    create(scope, &aligned(name, 200)).await?;
    scope.bound(name, SOON).await?;
    Ok(())
}

/// Creates pods that all have different templates.
async fn create_all(scope: &Scope, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let create = async |number: usize| create(scope, &aligned(&format!("p{number}"), number)).await;
    stream::iter(numbers).map(create).buffer_unordered(8).try_collect().await
}

/// A pod whose template has this traffic class, of 256.
fn aligned(name: &str, class: usize) -> Value {
    let annotations = json!({
        "dranet.io/aligned-nics": "1",
        "dranet.io/nic-config": json!({"rdma": {"trafficClass": class}}).to_string(),
    });
    pod(name, &annotations)
}
