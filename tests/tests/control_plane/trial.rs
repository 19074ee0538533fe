//! `kubectl dranet doctor --try` on the real control plane: its pod is admitted, scheduled, compared
//! with the promise, and always deleted. The nodes have no kubelet, so a loop here writes the status
//! that one would.

use std::{process::Stdio, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::{ResourceExt, api::ListParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::{Check, ControlPlane, Scope, binaries, eventually, lines::joined, suite::Test};
use tokio::process::{Child, Command};

use super::{
    played_kubelet::{ended, nothing_left, report},
    thin_line::{create, devices, pod, with_installation},
};

const SOON: Duration = Duration::from_mins(1);

const ADMITTED: &str = "✓ an aligned pod is admitted (dry run)";
const RUNS: &str = "✓ an aligned pod runs, with the devices that it was promised";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        an_aligned_pod_is_tried_and_deleted,
        what_keeps_the_tried_pod_from_running_is_said,
        an_interrupted_trial_leaves_nothing,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// What the loop does with a pod that has a node.
#[derive(Clone, Copy)]
enum Kubelet {
    Runs,
    HasNoImage,
    Sleeps,
}

async fn an_aligned_pod_is_tried_and_deleted(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        let output =
            ended(start(&plane, scope, &[])?, async || look(scope, Kubelet::Runs).await).await?;
        let text = joined(&String::from_utf8(output.stdout)?);
        assert!(text.contains(ADMITTED) && text.contains(RUNS), "{text}");
        nothing_left(scope, tried(scope).await?).await
    })
    .await
}

async fn what_keeps_the_tried_pod_from_running_is_said(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, nodes| {
        for (kubelet, expected) in [
            (Kubelet::HasNoImage, "does not start: ImagePullBackOff"),
            (Kubelet::Sleeps, "did not start on its node:"),
        ] {
            let flags = ["--try-timeout", "2"];
            let output =
                ended(start(&plane, scope, &flags)?, async || look(scope, kubelet).await).await?;
            let text = joined(&String::from_utf8(output.stdout)?);
            assert!(text.contains(ADMITTED) && text.contains(expected), "{text}");
            assert_eq!(output.status.code(), Some(3), "{text}");
            nothing_left(scope, tried(scope).await?).await?;
        }
        // No device is free.
        for index in 0..4 * nodes.len() {
            let name = format!("holder-{index}");
            create(scope, pod(&name, Some("1"))).await?;
            devices(scope, &name).await?;
        }
        let flags = ["--try-timeout", "2"];
        let output =
            ended(start(&plane, scope, &flags)?, async || look(scope, Kubelet::Runs).await).await?;
        let text = joined(&String::from_utf8(output.stdout)?);
        assert!(text.contains("warning: pod of --try") && text.contains("got no node:"), "{text}");
        Ok(())
    })
    .await
}

async fn an_interrupted_trial_leaves_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        let child = start(&plane, scope, &[])?;
        eventually(SOON, async || {
            let there = tried(scope).await?.len();
            Ok(Check::that(there == 1, || format!("{there} pods")))
        })
        .await?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.context("it runs")?, Signal::TERM)?;
        let output = ended(child, async || look(scope, Kubelet::Sleeps).await).await?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("interrupted"), "{errors}");
        nothing_left(scope, tried(scope).await?).await
    })
    .await
}

fn start(plane: &ControlPlane, scope: &Scope, flags: &[&str]) -> anyhow::Result<Child> {
    let mut command = Command::new(binaries::ours("kubectl-dranet")?);
    command.args(["doctor", "--try", "-n", scope.namespace()]);
    command.args(["--admission-namespace", scope.namespace(), "--kubeconfig"]);
    command.arg(plane.kubeconfig()).args(flags);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    Ok(command.spawn()?)
}

async fn tried(scope: &Scope) -> anyhow::Result<Vec<Pod>> {
    let pods = scope.api::<Pod>().list(&ListParams::default()).await?.items;
    Ok(pods.into_iter().filter(|pod| pod.name_any().starts_with("dranet-doctor-")).collect())
}

/// One iteration of a kubelet over the pod.
async fn look(scope: &Scope, kubelet: Kubelet) -> anyhow::Result<()> {
    for pod in tried(scope).await? {
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            scope.delete_pod(&name).await?;
            continue;
        }
        if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
            continue;
        }
        let state = match kubelet {
            Kubelet::Runs => json!({ "running": { "startedAt": Timestamp::now() } }),
            Kubelet::HasNoImage => json!({ "waiting": { "reason": "ImagePullBackOff" } }),
            Kubelet::Sleeps => continue,
        };
        let phase = if matches!(kubelet, Kubelet::Runs) { "Running" } else { "Pending" };
        report(scope, &name, phase, &state).await?;
    }
    Ok(())
}
