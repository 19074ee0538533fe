//! `kubectl dranet bench` on the real control plane: its two pods are admitted, scheduled on
//! different nodes, measured, and always deleted. The nodes have no kubelet, so a loop here writes
//! the status that one would.

use std::{collections::BTreeSet, fs, process::Stdio, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, api::ListParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, binaries, eventually, suite::Test};
use tokio::process::{Child, Command};

use super::{
    played_kubelet::{ended, nothing_left, report, report_all},
    thin_line::with_installation,
};

const SOON: Duration = Duration::from_mins(1);

/// The minimum time of a measurement.
const MEASURED: SignedDuration = SignedDuration::from_secs(2);

/// What perftest printed on a NIC of 200 Gb/s.
const FAST: &str =
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 4096       5000             188.76             188.56             5.754307
";
/// The same on one of 56 Gb/s.
const SLOW: &str =
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             51.05              51.04              0.097356
";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        two_pods_are_measured_and_deleted,
        an_interrupted_measurement_leaves_nothing,
        a_failed_measurement_leaves_nothing,
        near_and_far_pods_are_measured_one_after_another,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// What the loop does with pods that have a node.
#[derive(Clone, Copy)]
enum Kubelet {
    /// The client succeeds with this output.
    Measures(&'static str),
    /// The client fails with this output.
    Fails(&'static str),
    /// Their image cannot be pulled.
    HasNoImage,
    /// The client runs and does not end.
    NeverEnds,
    /// Nothing starts.
    Sleeps,
}

async fn two_pods_are_measured_and_deleted(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, nodes| {
        let child = start(&plane, scope, &["-o", "json"])?;
        let output = ended(child, async || look(scope, Kubelet::Measures(FAST)).await).await?;
        let answer: Value = serde_json::from_slice(&output.stdout).context("it prints JSON")?;
        let schema = binaries::in_tests("../docs/reference/schemas/bench.json");
        let schema: Value = serde_json::from_str(&fs::read_to_string(schema)?)?;
        let keys = |object: &Value| -> BTreeSet<String> {
            object.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        assert_eq!(keys(&answer), keys(&schema["properties"]));
        assert_eq!(keys(&answer["server"]), keys(&schema["$defs"]["BenchEnd"]["properties"]));
        let used = [&answer["server"]["node"], &answer["client"]["node"]];
        assert!(
            used[0] != used[1] && used.iter().all(|it| nodes.iter().any(|n| *it == n)),
            "{answer}"
        );
        assert!(
            answer["server"]["nics"][0]["name"].is_string()
                && answer["client"]["nics"][0]["name"].is_string(),
            "{answer}"
        );
        assert_eq!(answer["measuredGbps"], 188.56, "{answer}");
        let promised = answer["promisedGbps"].as_f64().context("the NICs publish rates")?;
        let percent = answer["percent"].as_f64().context("it compares")?;
        assert!((percent - 18_856.0 / promised).abs() < 1e-6, "{answer}");
        let is_less = percent < 80.0;
        assert_eq!(output.status.code(), Some(if is_less { 3 } else { 0 }), "{answer}");
        nothing_left(scope, bench_pods(scope).await?).await?;
        for (least, code) in [("0", 0), ("100", 3)] {
            let child = start(&plane, scope, &["--at-least", least])?;
            let output = ended(child, async || look(scope, Kubelet::Measures(SLOW)).await).await?;
            let text = String::from_utf8(output.stdout)?;
            assert!(text.contains("measured 51.0 Gb/s with messages of 65536 bytes, "), "{text}");
            assert_eq!(output.status.code(), Some(code), "{text}");
            nothing_left(scope, bench_pods(scope).await?).await?;
        }
        Ok(())
    })
    .await
}

/// Interrupted before anything starts, and while the client runs; by Ctrl-C and by SIGTERM.
async fn an_interrupted_measurement_leaves_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        for (kubelet, pods, signal) in [
            (Kubelet::Sleeps, 1, Signal::INT),
            (Kubelet::NeverEnds, 2, Signal::INT),
            (Kubelet::NeverEnds, 2, Signal::TERM),
        ] {
            let child = start(&plane, scope, &[])?;
            eventually(SOON, async || {
                look(scope, kubelet).await?;
                let there = bench_pods(scope).await?.len();
                Ok(Check::that(there == pods, || format!("{there} pods")))
            })
            .await?;
            let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
            kill_process(pid.context("it runs")?, signal)?;
            let output = ended(child, async || look(scope, kubelet).await).await?;
            let errors = String::from_utf8(output.stderr)?;
            assert_eq!(output.status.code(), Some(1), "{errors}");
            let expected = "error: no measurement; the pods are deleted: interrupted";
            assert!(errors.contains(expected), "{errors}");
            nothing_left(scope, bench_pods(scope).await?).await?;
        }
        Ok(())
    })
    .await
}

async fn a_failed_measurement_leaves_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        for (kubelet, flags, expected) in [
            (Kubelet::Fails("Couldn't connect to 10.0.0.1:18515"), &[][..], "Couldn't connect to"),
            (Kubelet::Measures("Segmentation fault"), &[], "the output has no table of bandwidths"),
            (Kubelet::HasNoImage, &[], "ImagePullBackOff"),
            (Kubelet::Sleeps, &["--timeout", "1"], "was not ready after 1 seconds"),
            (
                Kubelet::Sleeps,
                &["--nodes", "nowhere", "--timeout", "3"],
                "no node matches the pod's nodeSelector",
            ),
        ] {
            let output =
                ended(start(&plane, scope, flags)?, async || look(scope, kubelet).await).await?;
            let errors = String::from_utf8(output.stderr)?;
            assert_eq!(output.status.code(), Some(1), "{errors}");
            assert!(errors.contains(expected), "`{expected}` is missing in: {errors}");
            nothing_left(scope, bench_pods(scope).await?).await?;
        }
        Ok(())
    })
    .await
}

/// The placements of upstream's GB300 example: one NIC near, one far, two near.
async fn near_and_far_pods_are_measured_one_after_another(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, _| {
        let against = ["--against", "unaligned"];
        let child = start(&plane, scope, &[&against[..], &["-o", "json"]].concat())?;
        let output = ended(child, async || launch(scope).await).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer: Value = serde_json::from_slice(&output.stdout).context(errors.to_string())?;
        let placements = answer["placements"].as_array().context("it lists placements")?;
        let expected = [
            ("oneNear", "NODE", 1, 448.0),
            ("oneFar", "SYS", 1, 200.0),
            ("twoNear", "NODE", 2, 896.0),
        ];
        assert_eq!(placements.len(), expected.len(), "{answer}");
        for (placement, (name, path, nics, gbps)) in placements.iter().zip(expected) {
            let result = &placement["result"];
            assert_eq!(placement["placement"], name, "{answer}");
            assert_eq!(result["measuredGbps"], gbps, "{answer}");
            for end in [&result["server"], &result["client"]] {
                assert_eq!(end["gpus"].as_array().map(Vec::len), Some(1), "{answer}");
                let got = end["nics"].as_array().context("it has NICs")?;
                assert!(got.len() == nics && got.iter().all(|nic| nic["path"] == path), "{answer}");
            }
        }
        nothing_left(scope, bench_pods(scope).await?).await?;
        let child = start(&plane, scope, &against)?;
        let output = ended(child, async || launch(scope).await).await?;
        let text = String::from_utf8(output.stdout)?;
        for part in [
            "one NIC far    server",
            "448.0 Gb/s  56.0 GB/s   2.24 times",
            "two NICs near  896.0 Gb/s",
        ] {
            assert!(text.contains(part), "`{part}` is missing in:\n{text}");
        }
        nothing_left(scope, bench_pods(scope).await?).await
    })
    .await
}

/// One iteration of a kubelet over the pods of an NCCL test, which is as fast as upstream's example
/// says for what the pods got.
async fn launch(scope: &Scope) -> anyhow::Result<()> {
    let pods = bench_pods(scope).await?;
    let client_has_run = pods.iter().any(|pod| pod.name_any().ends_with("client") && has_run(pod));
    for pod in &pods {
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            scope.delete_pod(&name).await?;
            continue;
        }
        let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_server = name.ends_with("server");
        // It has the command for the second pod from the beginning.
        let relay = is_server
            .then(|| ("relay", json!({ "terminated": { "exitCode": 0, "message": "orted" } })));
        let (phase, state) = match phase {
            _ if !is_bound => continue,
            Some("Pending") => ("Running", json!({ "running": { "startedAt": Timestamp::now() } })),
            Some("Running") if is_server && client_has_run => {
                ("Succeeded", json!({ "terminated": { "exitCode": 0, "message": result(pod) } }))
            }
            _ => continue,
        };
        let states: Vec<_> = [("main", state)].into_iter().chain(relay).collect();
        report_all(scope, &name, phase, &states).await?;
    }
    Ok(())
}

/// What the NCCL test prints in a pod with these NICs.
fn result(pod: &Pod) -> String {
    let gigabytes = match pod.annotations().get("dranet.io/aligned-nics").map(String::as_str) {
        Some("1") => "56.00",
        Some(_) => "112.00",
        None => "25.00",
    };
    let place = format!("9.9 {gigabytes} {gigabytes} 0");
    format!("# size busbw\n 1073741824 268435456 float sum -1 {place} {place}\n")
}

fn start(plane: &ControlPlane, scope: &Scope, flags: &[&str]) -> anyhow::Result<Child> {
    let mut command = Command::new(binaries::ours("kubectl-dranet")?);
    command.args(["bench", "-n", scope.namespace(), "--kubeconfig"]).arg(plane.kubeconfig());
    command.args(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    Ok(command.spawn()?)
}

async fn bench_pods(scope: &Scope) -> anyhow::Result<Vec<Pod>> {
    Ok(scope.api::<Pod>().list(&ListParams::default().labels("bench.dranet.io/run")).await?.items)
}

/// One iteration of a kubelet over its pods.
async fn look(scope: &Scope, kubelet: Kubelet) -> anyhow::Result<()> {
    for pod in bench_pods(scope).await? {
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            scope.delete_pod(&name).await?;
            continue;
        }
        let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_client = name.ends_with("client");
        let ended = |phase: &str, code: u32, told: &str| {
            (phase.to_owned(), json!({ "terminated": { "exitCode": code, "message": told } }))
        };
        let (phase, state) = match (kubelet, phase) {
            _ if !is_bound => continue,
            (Kubelet::Sleeps, _) | (_, Some("Succeeded" | "Failed")) => continue,
            (Kubelet::HasNoImage, _) => {
                ("Pending".to_owned(), json!({ "waiting": { "reason": "ImagePullBackOff" } }))
            }
            (_, Some("Pending")) => {
                ("Running".to_owned(), json!({ "running": { "startedAt": Timestamp::now() } }))
            }
            (Kubelet::Measures(_) | Kubelet::Fails(_), _) if is_client && !has_run(&pod) => {
                continue;
            }
            (Kubelet::Measures(told), _) if is_client => ended("Succeeded", 0, told),
            (Kubelet::Fails(told), _) if is_client => ended("Failed", 1, told),
            _ => continue,
        };
        report(scope, &name, &phase, &state).await?;
    }
    Ok(())
}

/// Returns true if a container has run for the minimum time of a measurement.
fn has_run(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    let mut running = containers.filter_map(|it| it.state.as_ref()?.running.as_ref());
    let started = running.find_map(|it| it.started_at.as_ref());
    started.is_some_and(|it| Timestamp::now().duration_since(it.0) > MEASURED)
}
